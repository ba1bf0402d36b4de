import type { Socket } from 'node:net';
import { AgentError, agentCodeName } from './errors.ts';
import { Fields, field } from './fields.ts';
import { response } from './frame.ts';

/** The receiving half of one request. */
export interface Exchange {
  /** Called once, when the answer is whole or will not come. */
  onSettled: (() => void) | undefined;
  header(type: number): void;
  piece(bytes: Buffer): void;
  /** A frame is whole. True when it was the last of the answer. */
  end(): boolean;
  /** The answer is whole. */
  settle(): void;
  fail(reason: Error): void;
}

/** An answer made of fields, in one frame or several. */
export class FieldsResponse implements Exchange {
  onSettled: (() => void) | undefined;
  readonly frames: Fields[] = [];
  readonly promise: Promise<Fields[]>;
  readonly #resolve: (frames: Fields[]) => void;
  readonly #reject: (reason: Error) => void;
  #type = 0;
  #pieces: Buffer[] = [];
  #error: AgentError | undefined;

  constructor() {
    const { promise, resolve, reject } = Promise.withResolvers<Fields[]>();
    this.promise = promise;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  header(type: number): void {
    this.#type = type;
  }

  piece(bytes: Buffer): void {
    this.#pieces.push(bytes);
  }

  end(): boolean {
    const fields = new Fields(joined(this.#pieces));
    this.#pieces = [];
    if (this.#type === response.ERROR) this.#error = agentErrorOf(fields);
    else this.frames.push(fields);
    return this.#type !== response.MORE;
  }

  settle(): void {
    this.onSettled?.();
    if (this.#error) this.#reject(this.#error);
    else this.#resolve(this.frames);
  }

  fail(reason: Error): void {
    this.onSettled?.();
    this.#reject(reason);
  }
}

/** The answer to DIAL: when it is accepted, what follows belongs to the tunnel. */
export class DialResponse extends FieldsResponse {
  accepted = false;

  override header(type: number): void {
    super.header(type);
    this.accepted = type === response.OK;
  }
}

/** Bytes held for a reader that has not asked for them; past that the socket is left alone and TCP slows the agent. */
const HIGH_WATER_BYTES = 256 * 1024;

/** An answer of raw bytes, iterated in the socket's own chunks. */
export class RawResponse implements Exchange, AsyncIterableIterator<Buffer> {
  onSettled: (() => void) | undefined;
  readonly #socket: Socket;
  readonly #abandon: () => void;
  readonly #queue: Buffer[] = [];
  #queuedBytes = 0;
  #type = 0;
  #errorPieces: Buffer[] = [];
  #finished = false;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  constructor(socket: Socket, abandon: () => void) {
    this.#socket = socket;
    this.#abandon = abandon;
  }

  header(type: number): void {
    this.#type = type;
  }

  piece(bytes: Buffer): void {
    if (this.#type === response.ERROR) {
      this.#errorPieces.push(bytes);
      return;
    }
    this.#queue.push(bytes);
    this.#queuedBytes += bytes.length;
    if (this.#queuedBytes > HIGH_WATER_BYTES) this.#socket.pause();
    this.#wake?.();
  }

  end(): boolean {
    if (this.#type === response.ERROR) this.#failure = agentErrorOf(new Fields(joined(this.#errorPieces)));
    return this.#type !== response.MORE;
  }

  settle(): void {
    this.#finished = true;
    this.onSettled?.();
    // The connection is free for the next request while pieces of this one still wait to be taken.
    this.#socket.resume();
    this.#wake?.();
  }

  fail(reason: Error): void {
    this.#finished = true;
    this.#failure ??= reason;
    this.onSettled?.();
    this.#wake?.();
  }

  async next(): Promise<IteratorResult<Buffer, undefined>> {
    for (;;) {
      const piece = this.#queue.shift();
      if (piece !== undefined) {
        this.#queuedBytes -= piece.length;
        if (!this.#finished && this.#queuedBytes <= HIGH_WATER_BYTES && this.#socket.isPaused()) this.#socket.resume();
        return { done: false, value: piece };
      }
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#finished) return { done: true, value: undefined };
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
  }

  async return(): Promise<IteratorResult<Buffer, undefined>> {
    if (!this.#finished) this.#abandon();
    this.#queue.length = 0;
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

function agentErrorOf(fields: Fields): AgentError {
  return new AgentError(agentCodeName(fields.number(field.code)), fields.text(field.message) || 'the agent failed', {
    errno: fields.number(field.errno),
    path: fields.text(field.path),
  });
}

function joined(pieces: readonly Buffer[]): Buffer {
  const [only] = pieces;
  return pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces);
}
