import { randomInt } from 'node:crypto';
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import type { Log } from '../../core/log.ts';
import { questionOf, refusalOf } from './dns-message.ts';
import { type NameServer, nameServers } from './name-servers.ts';
import type { Occupants } from './occupants.ts';

const QUERY_TIMEOUT_MS = 5_000;
const MAX_PENDING = 4_096;
/** Of one sandbox, so that none keeps the others from asking. */
const MAX_PENDING_EACH = 128;
const MAX_TCP_QUERY_BYTES = 4_096;
const LISTEN_ATTEMPTS = 50;

interface Pending {
  client: { address: string; port: number; socket: UdpSocket };
  id: number;
  server: NameServer;
  timer: NodeJS.Timeout;
}

export interface ResolverPorts {
  /** Where questions are answered as the policy of the asker says. */
  resolverPort: number;
  /** Where every question is refused: for askers whose policy closes the name server that they ask. */
  refusalPort: number;
}

export interface ResolverOptions {
  /** Servers given by the operator; none: the machine's own. */
  servers: readonly string[];
  occupants: Occupants;
  /** Hears of names that a sandbox asked for and may not have. */
  denied: (guest: string, name: string) => void;
  log: Log;
}

/**
 * Answers the sandboxes' DNS questions by asking the machine's own servers, so that names work in a sandbox wherever they work on the machine,
 * without the sandbox reaching those servers (which mostly have private addresses). Where names rule, only those are answered: a question is
 * also a way to tell somebody something.
 */
export class Resolver {
  readonly #options: ResolverOptions;
  readonly #pending = new Map<number, Pending>();
  /** Questions under way, by who asked. */
  readonly #asking = new Map<string, number>();
  readonly #udp: UdpSocket[] = [];
  readonly #tcp: Server[] = [];
  #upstream: UdpSocket | undefined;
  #nextServer = 0;

  constructor(options: ResolverOptions) {
    this.#options = options;
  }

  /** Listens on the preferred ports, or on others where they are taken; resolves to the ports. */
  async start(preferred: Partial<ResolverPorts>): Promise<ResolverPorts> {
    const open = (port: number | undefined, refuses: boolean) =>
      this.#listen(port ?? 0, refuses).catch(() => this.#listenAnywhere(refuses));
    const resolverPort = await open(preferred.resolverPort, false);
    const refusalPort = await open(preferred.refusalPort, true);
    const upstream = createSocket('udp4');
    upstream.on('message', (message, from) => this.#answer(message, from));
    upstream.on('error', (error) => this.#options.log.warn('resolver upstream', { error: error.message }));
    this.#upstream = upstream;
    return { resolverPort, refusalPort };
  }

  async stop(): Promise<void> {
    for (const pending of this.#pending.values()) clearTimeout(pending.timer);
    this.#pending.clear();
    this.#asking.clear();
    this.#upstream?.close();
    for (const socket of this.#udp.splice(0)) socket.close();
    for (const server of this.#tcp.splice(0)) server.close();
  }

  /** A port that is free for UDP may be taken for TCP, on a busy machine several times in a row. */
  async #listenAnywhere(refuses: boolean): Promise<number> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#listen(0, refuses);
      } catch (error) {
        if (attempt >= LISTEN_ATTEMPTS) throw error;
      }
    }
  }

  async #listen(port: number, refuses: boolean): Promise<number> {
    const udp = createSocket('udp4');
    await new Promise<void>((resolve, reject) => {
      udp.once('error', reject);
      udp.bind(port, '0.0.0.0', resolve);
    });
    const bound = udp.address().port;
    const tcp = createServer((socket) => this.#serveTcp(socket, refuses));
    await new Promise<void>((resolve, reject) => {
      tcp.once('error', reject);
      tcp.listen(bound, '0.0.0.0', resolve);
    }).catch((error) => {
      udp.close();
      throw error;
    });
    udp.on('error', (error) => this.#options.log.warn('resolver', { error: error.message }));
    udp.on('message', (message, { address, port: from }) => {
      const verdict = this.#judge(message, address, refuses);
      if (verdict === 'pass') this.#forward(message, { address, port: from, socket: udp });
      else if (verdict !== undefined) udp.send(verdict, from, address);
    });
    this.#udp.push(udp);
    this.#tcp.push(tcp);
    return bound;
  }

  /** Whether a question of a sandbox is passed on; if not, the answer it gets, or none. */
  #judge(message: Buffer, guest: string, refuses: boolean): 'pass' | Buffer | undefined {
    const policy = this.#options.occupants.of(guest)?.policy;
    const question = questionOf(message);
    if (policy === undefined || question === undefined) return undefined;
    if (!refuses && (!policy.isByName || policy.permitsName(question.name))) return 'pass';
    this.#options.denied(guest, question.name);
    return refusalOf(message, question);
  }

  /** Passes a question on under an id of ours, since two sandboxes may use the same one. */
  #forward(message: Buffer, client: Pending['client']): void {
    const own = this.#asking.get(client.address) ?? 0;
    if (this.#pending.size >= MAX_PENDING || own >= MAX_PENDING_EACH) return;
    this.#asking.set(client.address, own + 1);
    let id = randomInt(0x10000);
    while (this.#pending.has(id)) id = (id + 1) & 0xffff;
    const server = this.#server();
    const timer = setTimeout(() => this.#settle(id), QUERY_TIMEOUT_MS);
    this.#pending.set(id, { client, id: message.readUInt16BE(0), server, timer });
    const question = Buffer.from(message);
    question.writeUInt16BE(id, 0);
    this.#upstream?.send(question, server.port, server.address);
  }

  #answer(message: Buffer, from: NameServer): void {
    if (message.length < 2) return;
    const pending = this.#pending.get(message.readUInt16BE(0));
    if (pending === undefined || pending.server.address !== from.address || pending.server.port !== from.port) return;
    this.#settle(message.readUInt16BE(0));
    const answer = Buffer.from(message);
    answer.writeUInt16BE(pending.id, 0);
    pending.client.socket.send(answer, pending.client.port, pending.client.address);
  }

  #settle(id: number): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    clearTimeout(pending.timer);
    this.#pending.delete(id);
    const left = (this.#asking.get(pending.client.address) ?? 1) - 1;
    if (left > 0) this.#asking.set(pending.client.address, left);
    else this.#asking.delete(pending.client.address);
  }

  /** Questions over TCP, each with its length before it (RFC 7766). */
  #serveTcp(socket: Socket, refuses: boolean): void {
    const guest = socket.remoteAddress ?? '';
    const server = this.#server();
    let upstream: Socket | undefined;
    let unread: Buffer = Buffer.alloc(0);
    const end = () => {
      socket.destroy();
      upstream?.destroy();
    };
    const guard = (side: Socket) => {
      side.setTimeout(QUERY_TIMEOUT_MS * 2, end);
      side.on('error', end);
      side.on('close', end);
    };
    const pass = (framed: Buffer) => {
      if (upstream === undefined) {
        upstream = createConnection({ host: server.address, port: server.port });
        guard(upstream);
        upstream.pipe(socket);
      }
      upstream.write(framed);
    };
    guard(socket);
    socket.on('data', (chunk) => {
      unread = Buffer.concat([unread, chunk]);
      while (unread.length >= 2) {
        const length = unread.readUInt16BE(0);
        if (length > MAX_TCP_QUERY_BYTES) return end();
        if (unread.length < 2 + length) return;
        const framed = unread.subarray(0, 2 + length);
        unread = unread.subarray(2 + length);
        const verdict = this.#judge(framed.subarray(2), guest, refuses);
        if (verdict === undefined) return end();
        if (verdict === 'pass') pass(framed);
        else socket.write(Buffer.concat([lengthOf(verdict), verdict]));
      }
    });
  }

  /** The servers in turn. */
  #server(): NameServer {
    const servers = nameServers(this.#options.servers);
    return servers[this.#nextServer++ % servers.length] ?? { address: '8.8.8.8', port: 53 };
  }
}

function lengthOf(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length, 0);
  return length;
}
