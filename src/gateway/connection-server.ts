import { createServer as createHttp1Server, type Server as Http1Server, type IncomingMessage } from 'node:http';
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:tls';
import type { HttpHandler } from '../core/http.ts';

export interface ConnectionServerOptions {
  /** PEM; without it connections speak clear text. */
  tls?: { cert: string | Buffer; key: string | Buffer };
  handler: HttpHandler;
  upgrade: (req: IncomingMessage, socket: Duplex, head: Buffer) => void;
}

/** How HTTP/2 begins in clear text with prior knowledge (RFC 9113 §3.4). No method of HTTP/1 begins so. */
const PREFACE = 'PRI ';
/** A connection that says nothing for so long is closed. */
const FIRST_BYTES_TIMEOUT_MS = 60_000;
/** An idle connection is kept at least as long as any client keeps one for reuse, so that it is the client who closes. */
const KEEP_ALIVE_MS = 620_000;
const PROBE_AFTER_MS = 60_000;
const MAX_HEADER_BYTES = 64 * 1024;
const STREAM_WINDOW_BYTES = 1024 * 1024;
const SESSION_WINDOW_BYTES = 16 * 1024 * 1024;

/** Serves connections: HTTP/1.1 and HTTP/2, told apart by the first bytes or, under TLS, by ALPN. */
export class ConnectionServer {
  readonly #http1: Http1Server;
  readonly #http2: Http2Server;
  readonly #tls: TlsServer | undefined;
  readonly #sockets = new Set<Socket>();
  #emptied: (() => void) | undefined;

  constructor(options: ConnectionServerOptions) {
    this.#http1 = http1Server(options);
    this.#http2 = http2Server(options);
    this.#tls =
      options.tls &&
      createTlsServer({ ...options.tls, ALPNProtocols: ['h2', 'http/1.1'] }, (socket) =>
        this.#hand(socket, socket.alpnProtocol === 'h2'),
      );
    // It checks the time limits of its connections from this event on.
    this.#http1.emit('listening');
  }

  /** Serves a connection of which nothing has been read yet. */
  take(socket: Socket): void {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    // A client that vanished is noticed, also on an upgraded connection where nothing else has a time limit.
    socket.setKeepAlive(true, PROBE_AFTER_MS);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#emptied?.();
    });
    // Whoever serves the connection sees its end; an error before that is nobody's.
    socket.on('error', () => socket.destroy());
    if (this.#tls) this.#tls.emit('connection', socket);
    else this.#tellApart(socket);
  }

  /** Lets requests under way end for `graceMs`, then cuts what is left. */
  async stop(graceMs = 0): Promise<void> {
    const empty = new Promise<void>((resolve) => {
      this.#emptied = resolve;
    });
    this.#http1.closeIdleConnections();
    const cut = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, graceMs);
    if (this.#sockets.size > 0) await empty;
    clearTimeout(cut);
    this.#http1.close();
    this.#http2.close();
  }

  /** Looks at the first bytes of a clear-text connection and puts them back. */
  #tellApart(socket: Socket): void {
    socket.setTimeout(FIRST_BYTES_TIMEOUT_MS, () => socket.destroy());
    let seen: Buffer = Buffer.alloc(0);
    const look = () => {
      const chunk: Buffer | null = socket.read();
      if (chunk !== null) seen = Buffer.concat([seen, chunk]);
      const beginning = seen.subarray(0, PREFACE.length).toString('latin1');
      // Fewer bytes than tell the two apart, and so far the same: wait for the next. They are put back only once it is
      // clear, since putting back is itself an event that would be waited for.
      if (seen.length < PREFACE.length && PREFACE.startsWith(beginning)) return;
      socket.off('readable', look);
      socket.setTimeout(0);
      socket.unshift(seen);
      this.#hand(socket, beginning === PREFACE);
    };
    socket.on('readable', look);
  }

  #hand(socket: Socket, isHttp2: boolean): void {
    (isHttp2 ? this.#http2 : this.#http1).emit('connection', socket);
  }
}

function http1Server(options: ConnectionServerOptions): Http1Server {
  const server = createHttp1Server({
    maxHeaderSize: MAX_HEADER_BYTES,
    keepAliveTimeout: KEEP_ALIVE_MS,
    // A request may take as long as its body does: an upload of hours, a stream of input.
    requestTimeout: 0,
    headersTimeout: FIRST_BYTES_TIMEOUT_MS,
    // Offered by some clients beside a plain request; HTTP/2 in clear text is spoken with prior knowledge only.
    shouldUpgradeCallback: (req: IncomingMessage) => req.headers.upgrade?.toLowerCase() !== 'h2c',
  });
  server.on('request', options.handler);
  server.on('upgrade', options.upgrade);
  return server;
}

function http2Server(options: ConnectionServerOptions): Http2Server {
  const server = createHttp2Server({
    settings: {
      initialWindowSize: STREAM_WINDOW_BYTES,
      maxConcurrentStreams: 1000,
      maxHeaderListSize: MAX_HEADER_BYTES,
    },
    maxSessionMemory: 256,
  });
  server.on('session', (session: ServerHttp2Session) => {
    session.setLocalWindowSize(SESSION_WINDOW_BYTES);
    session.on('error', () => undefined);
  });
  server.on('request', options.handler);
  return server;
}
