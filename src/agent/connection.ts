import { connect, type Socket } from 'node:net';
import { messageOf, SandbarError } from '../core/errors.ts';
import type { Fields, FieldWriter } from './fields.ts';
import { encodeHeader, FrameDecoder, type FrameSink, type Operation } from './frame.ts';
import { DialResponse, type Exchange, FieldsResponse, RawResponse } from './response.ts';

export interface AgentTarget {
  host: string;
  port: number;
  /** 32 bytes. */
  secret: Buffer;
}

/** The way to the agent is gone. The request may or may not have been carried out. */
export class ConnectionLost extends SandbarError {
  constructor(message: string, cause?: unknown) {
    super('unavailable', message, { cause });
    this.name = 'ConnectionLost';
  }
}

const MAGIC = Buffer.from('SBA1');
const ACCEPTED = 1;
const OPEN_TIMEOUT_MS = 5_000;
const SMALL_BYTES = 16 * 1024;

/** One authenticated TCP connection to an agent. Whoever makes a request waits for the answer before the next, `callBoth` aside. */
export class Connection {
  readonly #socket: Socket;
  readonly #decoder: FrameDecoder;
  /** Requests without an answer, oldest first. */
  readonly #exchanges: Exchange[] = [];
  #failure: Error | undefined;

  /** Connects and presents the secret. */
  static async open(target: AgentTarget, signal?: AbortSignal): Promise<Connection> {
    return new Connection(await openSocket(target, signal));
  }

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#decoder = new FrameDecoder(this.#sink());
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.on('error', this.#onError);
    socket.on('close', this.#onClose);
    socket.on('timeout', this.#onEnd);
    socket.resume();
  }

  /** True when a request can be made. */
  get usable(): boolean {
    return this.#failure === undefined && this.#exchanges.length === 0 && !this.#socket.destroyed;
  }

  /** Closes the connection by itself when it has been unused for so long; 0 never. */
  expireAfter(idleMs: number): void {
    this.#socket.setTimeout(idleMs);
  }

  onceClosed(listener: () => void): void {
    if (this.#socket.destroyed) listener();
    else this.#socket.once('close', listener);
  }

  /** A request whose answer is fields. */
  call(type: Operation, payload: FieldWriter, signal?: AbortSignal): Promise<Fields[]> {
    const exchange = new FieldsResponse();
    this.#begin(exchange, type, payload, signal);
    return exchange.promise;
  }

  /** Two requests in one piece; the agent turns to the second when it has answered the first. */
  callBoth(
    first: [type: Operation, payload: FieldWriter],
    second: [type: Operation, payload: FieldWriter],
  ): { first: Promise<Fields[]>; second: Promise<Fields[]> } {
    const exchanges = { first: new FieldsResponse(), second: new FieldsResponse() };
    if (this.usable) {
      this.#exchanges.push(exchanges.first, exchanges.second);
      this.#write([...framed(...first), ...framed(...second)], first[1].size + second[1].size);
    } else for (const exchange of Object.values(exchanges)) exchange.fail(this.#unusable());
    return { first: exchanges.first.promise, second: exchanges.second.promise };
  }

  /** A request whose answer is raw bytes, given in the pieces in which they arrive. Leaving the iteration early closes the connection. */
  read(type: Operation, payload: FieldWriter, signal?: AbortSignal): RawResponse {
    const exchange = new RawResponse(this.#socket, () => this.destroy());
    this.#begin(exchange, type, payload, signal);
    return exchange;
  }

  /** A request after which the connection is a tunnel. The socket then belongs to the caller. */
  async dial(type: Operation, payload: FieldWriter, signal?: AbortSignal): Promise<Socket> {
    const exchange = new DialResponse();
    this.#begin(exchange, type, payload, signal);
    await exchange.promise;
    return this.#socket;
  }

  destroy(reason: Error = new ConnectionLost('the connection to the agent was closed')): void {
    this.#fail(reason);
    this.#socket.destroy();
  }

  #begin(exchange: Exchange, type: Operation, payload: FieldWriter, signal: AbortSignal | undefined): void {
    if (signal?.aborted || !this.usable) {
      exchange.fail(signal?.aborted ? asError(signal.reason) : this.#unusable());
      return;
    }
    this.#exchanges.push(exchange);
    if (signal) {
      const abort = () => this.destroy(asError(signal.reason));
      signal.addEventListener('abort', abort, { once: true });
      exchange.onSettled = () => signal.removeEventListener('abort', abort);
    }
    this.#write(framed(type, payload), payload.size);
  }

  #unusable(): Error {
    return this.#failure ?? new ConnectionLost('the connection is in use');
  }

  #write(pieces: Uint8Array[], size: number): void {
    // What is small goes as one piece, which costs the kernel less than many; what is large is not copied.
    if (size <= SMALL_BYTES) this.#socket.write(Buffer.concat(pieces));
    else {
      this.#socket.cork();
      for (const piece of pieces) this.#socket.write(piece);
      this.#socket.uncork();
    }
  }

  #sink(): FrameSink {
    return {
      header: (type) => {
        const [exchange] = this.#exchanges;
        if (exchange === undefined) throw new RangeError('the agent answered what was not asked');
        exchange.header(type);
      },
      piece: (bytes) => this.#exchanges[0]?.piece(bytes),
      end: () => {
        const [exchange] = this.#exchanges;
        if (exchange === undefined || !exchange.end()) return true;
        this.#exchanges.shift();
        const tunnel = exchange instanceof DialResponse && exchange.accepted;
        if (tunnel) this.#detach();
        exchange.settle();
        return !tunnel;
      },
    };
  }

  readonly #onData = (chunk: Buffer): void => {
    try {
      const framed = this.#decoder.push(chunk);
      if (framed < chunk.length) this.#socket.unshift(chunk.subarray(framed));
    } catch (error) {
      this.destroy(new ConnectionLost(messageOf(error), error));
    }
  };

  readonly #onEnd = (): void => this.destroy(new ConnectionLost('the agent closed the connection'));

  readonly #onError = (error: Error): void =>
    this.#fail(new ConnectionLost(`the connection to the agent failed: ${error.message}`, error));

  readonly #onClose = (): void => this.#fail(new ConnectionLost('the connection to the agent was lost'));

  #fail(reason: Error): void {
    if (this.#failure !== undefined) return;
    this.#failure = reason;
    for (const exchange of this.#exchanges.splice(0)) exchange.fail(reason);
  }

  /** Leaves the socket to its new owner as if it were fresh. */
  #detach(): void {
    this.#failure = new ConnectionLost('the connection has become a tunnel');
    this.#socket.setTimeout(0);
    this.#socket.off('data', this.#onData);
    // Neither flowing nor paused, so that nothing is lost before the owner listens and its listening starts the flow:
    // the way back to that state is to take away a listener of 'readable'.
    const none = () => undefined;
    this.#socket.on('readable', none);
    this.#socket.off('readable', none);
    this.#socket.off('end', this.#onEnd);
    this.#socket.off('error', this.#onError);
    this.#socket.off('close', this.#onClose);
    this.#socket.off('timeout', this.#onEnd);
  }
}

function framed(type: Operation, payload: FieldWriter): Uint8Array[] {
  return [encodeHeader(type, payload.size), ...payload.pieces()];
}

function openSocket(target: AgentTarget, signal: AbortSignal | undefined): Promise<Socket> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(asError(signal.reason));
    // Half-open: a tunnel passes on the end of one direction while the other goes on.
    const socket = connect({ host: target.host, port: target.port, noDelay: true, allowHalfOpen: true });
    const finish = (failure?: Error) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      socket.removeAllListeners();
      if (failure === undefined) return resolve(socket);
      // A destroyed socket may still report the error that destroyed it.
      socket.on('error', () => undefined);
      socket.destroy();
      reject(failure);
    };
    const lost = (why: string, cause?: unknown) =>
      finish(new ConnectionLost(`cannot reach the agent at ${target.host}:${target.port}: ${why}`, cause));
    const abort = () => finish(asError(signal?.reason));
    const timer = setTimeout(() => lost(`no answer within ${OPEN_TIMEOUT_MS} ms`), OPEN_TIMEOUT_MS);
    signal?.addEventListener('abort', abort, { once: true });
    socket.on('error', (error) => lost(error.message, error));
    socket.on('end', () => lost('it closed the connection'));
    socket.on('connect', () => socket.write(Buffer.concat([MAGIC, target.secret])));
    socket.on('data', (answer: Buffer) => {
      socket.pause();
      if (answer[0] !== ACCEPTED) return lost('it refused the secret');
      if (answer.length > 1) return lost('it answered what was not asked');
      finish();
    });
  });
}

export function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new SandbarError('unavailable', String(reason));
}
