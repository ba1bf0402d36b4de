/** Frames of the agent protocol: one byte type, four bytes length, payload (docs/agent-protocol.md, "Frames"). */

export const HEADER_BYTES = 5;
export const MAX_PAYLOAD_BYTES = 4 * 1024 * 1024;

/** Operations, the type of a request. */
export const operation = {
  PING: 1,
  CONFIGURE: 2,
  STAT: 3,
  LIST: 4,
  MAKE_DIR: 5,
  MOVE: 6,
  REMOVE: 7,
  OPEN_READ: 8,
  READ_AT: 9,
  OPEN_WRITE: 10,
  WRITE_AT: 11,
  CLOSE: 12,
  COMPOSE: 13,
  WATCH_CREATE: 14,
  WATCH_READ: 15,
  WATCH_REMOVE: 16,
  START: 17,
  READ_OUTPUT: 18,
  UNSUBSCRIBE: 19,
  WRITE_INPUT: 20,
  CLOSE_STDIN: 21,
  SIGNAL: 22,
  RESIZE: 23,
  PROCESSES: 24,
  DIAL: 25,
  RELIEVE: 26,
  DISK: 27,
  SYNC: 28,
  SET_TIME: 29,
} as const;

export type Operation = (typeof operation)[keyof typeof operation];

/** Types of a response. */
export const response = { OK: 0, MORE: 1, ERROR: 2 } as const;

export function encodeHeader(type: number, length: number): Buffer {
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  header[0] = type;
  header.writeUInt32BE(length, 1);
  return header;
}

/** What a decoder reports, in order: a header, the pieces of its payload as they came, its end. */
export interface FrameSink {
  header(type: number, length: number): void;
  piece(bytes: Buffer): void;
  /** False: what follows is not framed any more. */
  end(): boolean;
}

/** Cuts a byte stream into frames without copying: payloads are handed on as views of the chunks they came in. */
export class FrameDecoder {
  readonly #sink: FrameSink;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerFilled = 0;
  /** Payload bytes still to come; undefined while a header is being read. */
  #missing: number | undefined;
  #detached = false;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /** Takes a chunk and gives the number of its bytes that were frames: all of them until the sink says otherwise. */
  push(chunk: Buffer): number {
    let at = 0;
    while (at < chunk.length && !this.#detached) {
      if (this.#missing === undefined) at += this.#readHeader(chunk, at);
      else {
        const piece = chunk.subarray(at, at + this.#missing);
        at += piece.length;
        this.#missing -= piece.length;
        this.#sink.piece(piece);
        this.#endIfWhole();
      }
    }
    return at;
  }

  #readHeader(chunk: Buffer, at: number): number {
    const taken = chunk.copy(this.#header, this.#headerFilled, at, at + HEADER_BYTES - this.#headerFilled);
    this.#headerFilled += taken;
    if (this.#headerFilled < HEADER_BYTES) return taken;
    const length = this.#header.readUInt32BE(1);
    if (length > MAX_PAYLOAD_BYTES) throw new RangeError(`agent frame of ${length} bytes is too long`);
    this.#missing = length;
    this.#sink.header(this.#header.readUInt8(0), length);
    this.#endIfWhole();
    return taken;
  }

  #endIfWhole(): void {
    if (this.#missing !== 0) return;
    this.#missing = undefined;
    this.#headerFilled = 0;
    this.#detached = !this.#sink.end();
  }
}
