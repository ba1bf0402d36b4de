import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { matchesAny } from '../core/constant-time.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { type HttpRequest, type HttpResponse, isGone } from '../core/http.ts';
import type { Log } from '../core/log.ts';
import {
  type Answer,
  endWithSandbox,
  noAnswer,
  portNotOpen,
  refuseUpgrade,
  sandboxNotFound,
  sendAnswer,
  tooManyConnections,
  trafficTokenMissing,
  trafficTokenWrong,
} from '../core/sandbox-answers.ts';
import type { DataPlane } from '../node/contract.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';
import { type Admission, ConnectionCounts, type Leave } from './admission.ts';
import { type DialTarget, dialPort, PortNotOpen } from './dial.ts';
import { forwardHttp1 } from './forward-http1.ts';
import { forwardHttp2, isGrpc } from './forward-http2.ts';
import { forwardUpgrade } from './forward-upgrade.ts';
import { Guests } from './guests.ts';
import { forwardedHeaders, type RequestTarget, trafficTokenOf } from './headers.ts';

export interface SandboxProxyOptions {
  dataPlane: DataPlane;
  log: Log;
  /** Requests and upgraded connections that one sandbox may have at a time. */
  maxConnections?: number;
  /** Who counts them; each proxy its own unless it is told otherwise. */
  admission?: Admission;
}

const DEFAULT_MAX_CONNECTIONS = 1024;

/** The way from outside to any port of a sandbox: HTTP/1.1, HTTP/2, gRPC and WebSocket, streaming both ways (contract §3.5). */
export class SandboxProxy {
  readonly #dataPlane: DataPlane;
  readonly #log: Log;
  readonly #maxConnections: number;
  readonly #admission: Admission;
  readonly #guests: Guests;

  constructor(options: SandboxProxyOptions) {
    this.#dataPlane = options.dataPlane;
    this.#log = options.log.with({ part: 'proxy' });
    this.#maxConnections = options.maxConnections ?? DEFAULT_MAX_CONNECTIONS;
    this.#admission = options.admission ?? new ConnectionCounts();
    this.#guests = new Guests(options.dataPlane);
  }

  async handle(row: SandboxRow, port: number, req: HttpRequest, res: HttpResponse): Promise<void> {
    const admitted = await this.#admit(row, req);
    if ('status' in admitted) {
      sendAnswer(res, admitted, req.headers);
      return;
    }
    const { lifetime, leave } = admitted;
    if (isGone(res)) {
      leave();
      return;
    }
    const cut = () => endWithSandbox(row.id, res, req.headers);
    lifetime.addEventListener('abort', cut, { once: true });
    res.once('close', () => {
      lifetime.removeEventListener('abort', cut);
      leave();
    });
    try {
      await this.#forward(row, port, req, res);
    } catch (error) {
      if (lifetime.aborted) cut();
      else sendAnswer(res, this.#explain(error, row.id, port), req.headers);
    }
  }

  async upgrade(row: SandboxRow, port: number, req: IncomingMessage, client: Duplex, head: Buffer): Promise<void> {
    const admitted = await this.#admit(row, req);
    if ('status' in admitted) {
      refuseUpgrade(client, admitted, req.headers);
      return;
    }
    const { lifetime, leave } = admitted;
    if (client.destroyed) {
      leave();
      return;
    }
    const cut = () => client.destroy();
    lifetime.addEventListener('abort', cut, { once: true });
    client.once('close', () => {
      lifetime.removeEventListener('abort', cut);
      leave();
    });
    try {
      const connection = await dialPort(this.#dataPlane, dialTarget(row, port), lifetime);
      forwardUpgrade(connection, row.id, requestTarget(row, port), req, client, head);
    } catch (error) {
      refuseUpgrade(client, this.#explain(error, row.id, port), req.headers);
    }
  }

  /** Ends every connection into sandboxes. */
  close(): void {
    this.#guests.close();
  }

  async #forward(row: SandboxRow, port: number, req: HttpRequest, res: HttpResponse): Promise<void> {
    const target = dialTarget(row, port);
    if ('stream' in req && 'stream' in res && isGrpc(req.headers['content-type'])) {
      await forwardHttp2(await this.#guests.session(target), requestTarget(row, port), req, res);
    } else {
      await forwardHttp1(this.#guests.agent(target), forwardedHeaders(req, requestTarget(row, port)), req, res);
    }
  }

  /** Lets a request in, or says why not. */
  async #admit(row: SandboxRow, req: HttpRequest): Promise<Answer | { lifetime: AbortSignal; leave: Leave }> {
    if (row.trafficAccessToken !== null) {
      const token = trafficTokenOf(req.headers);
      if (token === undefined || token === '') return trafficTokenMissing(row.id);
      if (!matchesAny(token, [row.trafficAccessToken])) return trafficTokenWrong(row.id);
    }
    const leave = await this.#admission.enter(row.id, this.#maxConnections);
    if (leave === undefined) return tooManyConnections(row.id, this.#maxConnections);
    const lifetime = lifetimeOf(this.#dataPlane, row.id);
    if (lifetime !== undefined) return { lifetime, leave };
    leave();
    return sandboxNotFound(row.id);
  }

  #explain(error: unknown, sandboxId: string, port: number): Answer {
    if (error instanceof PortNotOpen) return portNotOpen(sandboxId, port);
    this.#log.debug('a request did not get an answer', { sandboxId, port, error: messageOf(error) });
    return noAnswer(sandboxId, port);
  }
}

/** Undefined when the sandbox has just gone from this machine. */
function lifetimeOf(dataPlane: DataPlane, sandboxId: string): AbortSignal | undefined {
  try {
    const lifetime = dataPlane.lifetime(sandboxId);
    return lifetime.aborted ? undefined : lifetime;
  } catch (error) {
    if (error instanceof SandbarError && error.kind === 'not_found') return undefined;
    throw error;
  }
}

function dialTarget(row: SandboxRow, port: number): DialTarget {
  return { sandboxId: row.id, port, tls: row.network?.httpsPorts?.includes(port) === true };
}

function requestTarget(row: SandboxRow, port: number): RequestTarget {
  return { port, maskRequestHost: row.network?.maskRequestHost };
}
