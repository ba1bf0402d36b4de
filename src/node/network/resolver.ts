import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { readFileSync } from 'node:fs';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import type { Log } from '../../core/log.ts';

const QUERY_TIMEOUT_MS = 5_000;
const MAX_PENDING = 4_096;
const FALLBACK_SERVERS = ['8.8.8.8', '1.1.1.1'];

interface Pending {
  client: { address: string; port: number };
  id: number;
  timer: NodeJS.Timeout;
}

/**
 * Answers the sandboxes' DNS questions by asking the machine's own servers, so that names work in a sandbox wherever they work on the machine,
 * without the sandbox reaching those servers (which mostly have private addresses).
 */
export class Resolver {
  readonly #log: Log;
  readonly #pending = new Map<number, Pending>();
  #downstream: UdpSocket | undefined;
  #upstream: UdpSocket | undefined;
  #tcp: Server | undefined;
  #nextId = 1;
  #nextServer = 0;

  constructor(log: Log) {
    this.#log = log;
  }

  /** Listens on the preferred port, or on another when it is taken; resolves to the port. */
  async start(preferredPort: number): Promise<number> {
    const port = await this.#listen(preferredPort).catch(() => this.#listen(0));
    const upstream = createSocket('udp4');
    upstream.on('message', (message) => this.#answer(message));
    upstream.on('error', (error) => this.#log.warn('resolver upstream', { error: error.message }));
    this.#upstream = upstream;
    return port;
  }

  async stop(): Promise<void> {
    for (const pending of this.#pending.values()) clearTimeout(pending.timer);
    this.#pending.clear();
    this.#upstream?.close();
    this.#downstream?.close();
    this.#tcp?.close();
  }

  async #listen(port: number): Promise<number> {
    const udp = createSocket('udp4');
    await new Promise<void>((resolve, reject) => {
      udp.once('error', reject);
      udp.bind(port, '0.0.0.0', resolve);
    });
    const bound = udp.address().port;
    const tcp = createServer((socket) => this.#relayTcp(socket));
    await new Promise<void>((resolve, reject) => {
      tcp.once('error', reject);
      tcp.listen(bound, '0.0.0.0', resolve);
    }).catch((error) => {
      udp.close();
      throw error;
    });
    udp.on('error', (error) => this.#log.warn('resolver', { error: error.message }));
    udp.on('message', (message, from) => this.#forward(message, from.address, from.port));
    this.#downstream = udp;
    this.#tcp = tcp;
    return bound;
  }

  /** Passes a question on under an id of ours, since two sandboxes may use the same one. */
  #forward(message: Buffer, address: string, port: number): void {
    if (message.length < 12 || this.#pending.size >= MAX_PENDING) return;
    let id = this.#nextId;
    while (this.#pending.has(id)) id = (id + 1) & 0xffff;
    this.#nextId = (id + 1) & 0xffff;
    const timer = setTimeout(() => this.#pending.delete(id), QUERY_TIMEOUT_MS);
    this.#pending.set(id, { client: { address, port }, id: message.readUInt16BE(0), timer });
    const question = Buffer.from(message);
    question.writeUInt16BE(id, 0);
    this.#upstream?.send(question, 53, this.#server());
  }

  #answer(message: Buffer): void {
    if (message.length < 12) return;
    const pending = this.#pending.get(message.readUInt16BE(0));
    if (pending === undefined) return;
    clearTimeout(pending.timer);
    this.#pending.delete(message.readUInt16BE(0));
    const answer = Buffer.from(message);
    answer.writeUInt16BE(pending.id, 0);
    this.#downstream?.send(answer, pending.client.port, pending.client.address);
  }

  #relayTcp(socket: Socket): void {
    const upstream = createConnection({ host: this.#server(), port: 53 });
    const end = () => {
      socket.destroy();
      upstream.destroy();
    };
    for (const side of [socket, upstream]) {
      side.setTimeout(QUERY_TIMEOUT_MS * 2, end);
      side.on('error', end);
      side.on('close', end);
    }
    socket.pipe(upstream);
    upstream.pipe(socket);
  }

  /** The machine's servers in turn; read each time, since they change when a laptop changes networks. */
  #server(): string {
    const servers = nameServers();
    return servers[this.#nextServer++ % servers.length] ?? '8.8.8.8';
  }
}

function nameServers(): string[] {
  for (const file of ['/run/systemd/resolve/resolv.conf', '/etc/resolv.conf']) {
    try {
      const found = [...readFileSync(file, 'utf8').matchAll(/^nameserver\s+(\d+\.\d+\.\d+\.\d+)\s*$/gm)].map(
        (m) => m[1] ?? '',
      );
      if (found.length > 0) return found;
    } catch {
      // The next file.
    }
  }
  return FALLBACK_SERVERS;
}
