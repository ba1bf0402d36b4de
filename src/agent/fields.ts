/**
 * The payload of a frame: fields of one byte number, four bytes length, value (docs/agent-protocol.md, "Frames").
 * The field numbers are the same in every message.
 */
export const field = {
  path: 1,
  user: 2,
  data: 3,
  handle: 4,
  offset: 5,
  length: 6,
  destination: 7,
  depth: 8,
  entry: 9,
  name: 10,
  type: 11,
  size: 12,
  mode: 13,
  targetMode: 14,
  owner: 15,
  group: 16,
  mtimeNs: 17,
  linkTarget: 18,
  xattr: 19,
  created: 20,
  truncate: 21,
  source: 22,
  recursive: 23,
  includeEntry: 24,
  watcher: 25,
  event: 26,
  sequence: 27,
  allowNetworkMounts: 28,
  gid: 29,
  uid: 30,
  pid: 31,
  tag: 32,
  cmd: 33,
  arg: 34,
  env: 35,
  cwd: 36,
  cols: 37,
  rows: 38,
  stdin: 39,
  deadlineMs: 40,
  operationId: 41,
  subscriber: 42,
  waitMs: 43,
  chunk: 44,
  stream: 45,
  ended: 46,
  exitCode: 47,
  signal: 48,
  deadlineHit: 49,
  process: 50,
  pty: 51,
  kind: 52,
  lost: 53,
  secret: 54,
  defaultUser: 55,
  defaultWorkdir: 56,
  hostname: 57,
  total: 58,
  used: 59,
  port: 60,
  code: 61,
  errno: 62,
  message: 63,
  pidsMax: 64,
  replay: 65,
  file: 66,
} as const;

const HEADER_BYTES = 5;
const NUMBER_BYTES = 8;

/** Collects fields. What is large is kept as it was given and never copied. */
export class FieldWriter {
  readonly #parts: Uint8Array[] = [];
  #size = 0;

  /** Bytes of the payload so far. */
  get size(): number {
    return this.#size;
  }

  number(no: number, value: number | bigint): this {
    const bytes = Buffer.allocUnsafe(HEADER_BYTES + NUMBER_BYTES);
    bytes[0] = no;
    bytes.writeUInt32BE(NUMBER_BYTES, 1);
    bytes.writeBigUInt64BE(BigInt.asUintN(64, BigInt(value)), HEADER_BYTES);
    return this.#push(bytes);
  }

  /** A flag; false is the same as leaving it out. */
  flag(no: number, value: boolean): this {
    return value ? this.number(no, 1) : this;
  }

  /** A text; an empty one is the same as leaving it out. */
  text(no: number, value: string): this {
    if (value === '') return this;
    const length = Buffer.byteLength(value);
    const bytes = Buffer.allocUnsafe(HEADER_BYTES + length);
    bytes[0] = no;
    bytes.writeUInt32BE(length, 1);
    bytes.write(value, HEADER_BYTES);
    return this.#push(bytes);
  }

  /** A text that is there even when it is empty: an argument, say. */
  textAlways(no: number, value: string): this {
    return this.bytes(no, [Buffer.from(value)]);
  }

  /** One value, given in pieces. */
  bytes(no: number, pieces: readonly Uint8Array[]): this {
    const head = Buffer.allocUnsafe(HEADER_BYTES);
    head[0] = no;
    head.writeUInt32BE(
      pieces.reduce((sum, piece) => sum + piece.length, 0),
      1,
    );
    this.#push(head);
    for (const piece of pieces) this.#push(piece);
    return this;
  }

  record(no: number, fields: FieldWriter): this {
    return this.bytes(no, fields.#parts);
  }

  /** The payload in pieces, to be written one after the other. */
  pieces(): readonly Uint8Array[] {
    return this.#parts;
  }

  #push(part: Uint8Array): this {
    this.#parts.push(part);
    this.#size += part.length;
    return this;
  }
}

/** The fields of a payload, read in place. A payload that breaks off inside a field is an error. */
export class Fields {
  readonly #values = new Map<number, Buffer | Buffer[]>();

  constructor(payload: Buffer) {
    let at = 0;
    while (at < payload.length) {
      const end = at + HEADER_BYTES <= payload.length ? at + HEADER_BYTES + payload.readUInt32BE(at + 1) : Infinity;
      if (end > payload.length) throw new RangeError('agent message breaks off inside a field');
      this.#add(payload.readUInt8(at), payload.subarray(at + HEADER_BYTES, end));
      at = end;
    }
  }

  /** Every value of a field that may repeat. */
  all(no: number): Buffer[] {
    const found = this.#values.get(no);
    if (found === undefined) return [];
    return Array.isArray(found) ? found : [found];
  }

  has(no: number): boolean {
    return this.#values.has(no);
  }

  bytes(no: number): Buffer | undefined {
    const found = this.#values.get(no);
    return Array.isArray(found) ? found[0] : found;
  }

  text(no: number): string {
    return this.bytes(no)?.toString('utf8') ?? '';
  }

  /** A number up to 2^53; missing is 0. */
  number(no: number): number {
    const bytes = this.bytes(no);
    if (bytes === undefined || bytes.length !== NUMBER_BYTES) return 0;
    return bytes.readUInt32BE(0) * 0x1_0000_0000 + bytes.readUInt32BE(4);
  }

  signed(no: number): number {
    const bytes = this.bytes(no);
    return bytes === undefined || bytes.length !== NUMBER_BYTES ? 0 : Number(bytes.readBigInt64BE(0));
  }

  /** A signed number of any size: times before 1970 are negative. */
  bigint(no: number): bigint {
    const bytes = this.bytes(no);
    return bytes === undefined || bytes.length !== NUMBER_BYTES ? 0n : bytes.readBigInt64BE(0);
  }

  flag(no: number): boolean {
    return this.number(no) !== 0;
  }

  #add(no: number, value: Buffer): void {
    const before = this.#values.get(no);
    if (before === undefined) this.#values.set(no, value);
    else if (Array.isArray(before)) before.push(value);
    else this.#values.set(no, [before, value]);
  }
}
