import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { ConnectionServer, type ConnectionServerOptions } from './connection-server.ts';

export interface ListenerOptions extends ConnectionServerOptions {
  host: string;
  /** 0: any free one. */
  port: number;
  /** Gives a connection, of which nothing has been read, to another process; false where there is none to take it. */
  handOver?: (socket: Socket) => boolean;
}

/** The one port of the service. */
export class Listener {
  readonly #options: ListenerOptions;
  readonly #connections: ConnectionServer;
  readonly #server: Server;

  constructor(options: ListenerOptions) {
    this.#options = options;
    this.#connections = new ConnectionServer(options);
    this.#server = createServer({ pauseOnConnect: options.handOver !== undefined }, (socket) => {
      if (!options.handOver?.(socket)) this.#connections.take(socket);
    });
  }

  /** Resolves with the port once connections are taken. */
  start(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.#options.port, this.#options.host, () => {
        this.#server.off('error', reject);
        resolve((this.#server.address() as AddressInfo).port);
      });
    });
  }

  /** Takes no more connections, lets requests under way end for `graceMs`, then cuts what is left. */
  async stop(graceMs = 0): Promise<void> {
    this.#server.close();
    await this.#connections.stop(graceMs);
  }
}
