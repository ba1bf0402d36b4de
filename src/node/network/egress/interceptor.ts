import {
  Agent,
  type ClientRequest,
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls, createSecureContext, getCACertificates, type SecureContext, TLSSocket } from 'node:tls';
import type { Authority } from '../../../core/certificates.ts';
import { messageOf } from '../../../core/errors.ts';
import { KeyedQueue } from '../../../core/keyed-queue.ts';
import { canonicalName } from '../policy.ts';
import { resolveHeaders } from './header-values.ts';
import type { Opening } from './opening.ts';

/** What is done to the requests of one connection. */
export interface Interception {
  headers: Record<string, string>;
  /** Values of secrets as they are now. */
  secrets: () => Record<string, string>;
  /** A connection to where this one was going. */
  dial: () => Promise<Socket>;
}

interface Context extends Interception {
  name: string;
  agent: Agent;
}

/** Headers about one connection (RFC 9110 §7.6.1), and what is answered here. */
const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
]);
const HANDSHAKE_MS = 10_000;
/** Names whose certificates are kept; a wildcard rule has as many names as a sandbox thinks up. */
const MOST_CERTIFICATES = 500;

/**
 * Sets headers on the requests of a connection, HTTP or HTTPS. For HTTPS it shows the sandbox a certificate of the service's own authority, for
 * the names that have rules and no others, and itself checks the certificate of the real server.
 */
export class Interceptor {
  readonly #authority: () => Promise<Authority>;
  readonly #contexts = new WeakMap<object, Context>();
  readonly #certificates = new Map<string, Promise<SecureContext>>();
  readonly #signing = new KeyedQueue();
  readonly #http: Server;
  #trust: SecureContext | undefined;

  constructor(authority: () => Promise<Authority>) {
    this.#authority = authority;
    this.#http = createServer({ requestTimeout: 0, keepAliveTimeout: 0 }, (req, res) => this.#forward(req, res));
    this.#http.on('upgrade', (req, socket, head) => this.#forwardUpgrade(req, socket, head));
  }

  async take(client: Socket, { kind, name = '', head }: Opening, interception: Interception): Promise<void> {
    // Made first: from here on nothing may be lost of what the client sends.
    const certificate = kind === 'tls' ? await this.#certificateFor(name) : undefined;
    client.unshift(head);
    const spoken = certificate === undefined ? client : await secured(client, certificate);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const connect = async () => {
      const raw = await interception.dial();
      return kind === 'tls' ? verified(raw, name, this.#trusted()) : raw;
    };
    agent.createConnection = (_options, done) => {
      const settle = done as (error: Error | null, stream?: Duplex) => void;
      connect().then(
        (stream) => settle(null, stream),
        (error: Error) => settle(error),
      );
      return undefined;
    };
    client.once('close', () => agent.destroy());
    this.#contexts.set(spoken, { ...interception, name, agent });
    this.#http.emit('connection', spoken);
    spoken.resume();
  }

  #forward(req: IncomingMessage, res: ServerResponse): void {
    const context = this.#contexts.get(req.socket);
    if (context === undefined) return void req.socket.destroy();
    const outgoing = this.#request(req, framing(req), context, (status, text) => answerText(res, status, text));
    if (outgoing === undefined) return;
    outgoing.on('response', (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.statusMessage ?? '', returned(answer));
      res.flushHeaders();
      answer.on('error', () => res.destroy());
      answer.on('end', () => {
        if (Object.keys(answer.trailers).length > 0) res.addTrailers(answer.trailers as Record<string, string>);
      });
      answer.pipe(res);
    });
    outgoing.on('error', (error) => {
      if (res.headersSent) res.destroy();
      else answerText(res, 502, `${context.name} could not be reached: ${messageOf(error)}`);
    });
    res.once('close', () => outgoing.destroy());
    req.pipe(outgoing);
  }

  #forwardUpgrade(req: IncomingMessage, client: Duplex, head: Buffer): void {
    client.on('error', () => client.destroy());
    const context = this.#contexts.get(req.socket);
    if (context === undefined) return void client.destroy();
    const upgrade = ['Connection', 'Upgrade', 'Upgrade', req.headers.upgrade ?? ''];
    const outgoing = this.#request(req, upgrade, context, (status, text) => {
      client.end(`HTTP/1.1 ${status} Refused\r\nConnection: close\r\n\r\nsandbar: ${text}\n`);
    });
    if (outgoing === undefined) return;
    outgoing.on('upgrade', (answer, upstream, rest) => {
      const lines = pairs(answer.rawHeaders).map(([field, value]) => `${field}: ${value}\r\n`);
      client.write(`HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}\r\n${lines.join('')}\r\n`);
      if (rest.length > 0) client.write(rest);
      if (head.length > 0) upstream.write(head);
      upstream.on('error', () => client.destroy());
      upstream.on('close', () => client.destroy());
      client.on('close', () => upstream.destroy());
      upstream.pipe(client).pipe(upstream);
    });
    outgoing.on('response', (answer) => {
      const lines = pairs(returned(answer)).map(([field, value]) => `${field}: ${value}\r\n`);
      client.write(
        `HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}\r\n${lines.join('')}Connection: close\r\n\r\n`,
      );
      answer.pipe(client);
    });
    outgoing.on('error', () => client.destroy());
    outgoing.end();
  }

  /** The request as it goes on, with the rule's headers in place of its own; undefined when it was refused instead. */
  #request(
    req: IncomingMessage,
    ownHeaders: readonly string[],
    context: Context,
    refuse: (status: number, text: string) => void,
  ): ClientRequest | undefined {
    // The connection was judged by its name: a request for another one is not let through on it.
    if (canonicalName((req.headers.host ?? '').replace(/:\d*$/, '')) !== context.name) {
      refuse(421, `this connection is for ${context.name}`);
      return undefined;
    }
    try {
      const added = resolveHeaders(context.headers, context.secrets());
      const replaced = new Set(Object.keys(added).map((name) => name.toLowerCase()));
      const kept = pairs(req.rawHeaders).filter(([field]) => {
        const name = field.toLowerCase();
        return !hopByHop.has(name) && !replaced.has(name);
      });
      return request({
        agent: context.agent,
        method: req.method ?? 'GET',
        path: pathOf(req),
        headers: [...kept.flat(), ...Object.entries(added).flat(), ...ownHeaders],
        setHost: false,
      });
    } catch (error) {
      refuse(502, messageOf(error));
      return undefined;
    }
  }

  #certificateFor(name: string): Promise<SecureContext> {
    let made = this.#certificates.get(name);
    if (made === undefined) {
      // One at a time: each is a program that is run.
      made = this.#signing.run('', async () => createSecureContext(await (await this.#authority()).issue([name])));
      this.#certificates.set(name, made);
      made.catch(() => this.#certificates.delete(name));
      const [oldest] = this.#certificates.keys();
      if (this.#certificates.size > MOST_CERTIFICATES && oldest !== undefined) this.#certificates.delete(oldest);
    }
    return made;
  }

  /** Whom the machine trusts: what Node brings, and what the machine's administrator has added. */
  #trusted(): SecureContext {
    this.#trust ??= createSecureContext({
      ca: [...new Set([...getCACertificates('default'), ...getCACertificates('system')])],
    });
    return this.#trust;
  }
}

/** The server's side of TLS on a sandbox's connection. */
function secured(client: Socket, secureContext: SecureContext): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = new TLSSocket(client, { isServer: true, secureContext, ALPNProtocols: ['http/1.1'] });
    settleWhen(socket, 'secure', resolve, reject);
  });
}

/** TLS to the real server, whose certificate must be good. */
function verified(raw: Socket, name: string, secureContext: SecureContext): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ socket: raw, servername: name, secureContext, ALPNProtocols: ['http/1.1'] });
    settleWhen(socket, 'secureConnect', resolve, reject);
  });
}

function settleWhen(
  socket: TLSSocket,
  event: 'secure' | 'secureConnect',
  resolve: (socket: TLSSocket) => void,
  reject: (error: Error) => void,
): void {
  const late = setTimeout(() => socket.destroy(new Error('no TLS handshake in time')), HANDSHAKE_MS);
  socket.once('close', () => {
    clearTimeout(late);
    reject(new Error('closed during the TLS handshake'));
  });
  socket.on('error', reject);
  socket.once(event, () => {
    clearTimeout(late);
    resolve(socket);
  });
}

function pathOf(req: IncomingMessage): string {
  return (req.url ?? '/').replace(/^https?:\/\/[^/?#]*/i, '') || '/';
}

function framing(req: IncomingMessage): string[] {
  return req.headers['transfer-encoding'] === undefined ? [] : ['Transfer-Encoding', 'chunked'];
}

function returned(answer: IncomingMessage): string[] {
  const own = new Set(['connection', 'keep-alive', 'transfer-encoding']);
  return pairs(answer.rawHeaders)
    .filter(([field]) => !own.has(field.toLowerCase()))
    .flat();
}

function pairs(flat: readonly string[]): [string, string][] {
  return Array.from({ length: flat.length >> 1 }, (_, index) => [flat[2 * index] ?? '', flat[2 * index + 1] ?? '']);
}

function answerText(res: ServerResponse, status: number, text: string): void {
  res.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', connection: 'close' });
  res.end(`sandbar: ${text}\n`);
}
