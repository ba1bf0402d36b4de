/** What is known of a beginning that may not be whole yet. */
export type Reading<T> = { state: 'more' } | { state: 'malformed' } | { state: 'whole'; value: T };

const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME_EXTENSION = 0;
const HOST_NAME = 0;
/** A record may hold 2^14 bytes (RFC 8446 §5.1). */
const MAX_RECORD_BYTES = 16_384;

/**
 * The server name that a TLS client asks for; undefined where it names none. The hello may be cut into any number of records and packets
 * (RFC 8446 §5.1), which is a way to hide the name from somebody who looks at the first packet alone.
 */
export function serverNameIn(bytes: Buffer): Reading<string | undefined> {
  const hello = helloIn(bytes);
  if (hello.state !== 'whole') return hello;
  try {
    return { state: 'whole', value: nameIn(new Cursor(hello.value)) };
  } catch {
    return { state: 'malformed' };
  }
}

/** The body of the client hello, put together from the records it came in. */
function helloIn(bytes: Buffer): Reading<Buffer> {
  const parts: Buffer[] = [];
  let gathered = 0;
  for (let at = 0; ; ) {
    const joined = gathered >= 4 ? Buffer.concat(parts) : undefined;
    if (joined !== undefined) {
      if (joined[0] !== CLIENT_HELLO) return { state: 'malformed' };
      const length = joined.readUIntBE(1, 3);
      if (joined.length >= 4 + length) return { state: 'whole', value: joined.subarray(4, 4 + length) };
    }
    if (at < bytes.length && bytes[at] !== HANDSHAKE_RECORD) return { state: 'malformed' };
    if (at + 1 < bytes.length && bytes[at + 1] !== 3) return { state: 'malformed' };
    if (bytes.length < at + 5) return { state: 'more' };
    const length = bytes.readUInt16BE(at + 3);
    if (length === 0 || length > MAX_RECORD_BYTES) return { state: 'malformed' };
    const part = bytes.subarray(at + 5, at + 5 + length);
    parts.push(part);
    gathered += part.length;
    // A record that is not whole may still hold the end of the hello, when another message follows in it: rare, and waited for.
    if (part.length < length) return { state: 'more' };
    at += 5 + length;
  }
}

function nameIn(hello: Cursor): string | undefined {
  hello.skip(2 + 32);
  hello.skip(hello.number(1));
  hello.skip(hello.number(2));
  hello.skip(hello.number(1));
  if (hello.atEnd) return undefined;
  const extensions = hello.part(hello.number(2));
  while (!extensions.atEnd) {
    const kind = extensions.number(2);
    const body = extensions.part(extensions.number(2));
    if (kind !== SERVER_NAME_EXTENSION) continue;
    const list = body.part(body.number(2));
    while (!list.atEnd) {
      const nameKind = list.number(1);
      const name = list.part(list.number(2));
      if (nameKind === HOST_NAME) return name.text();
    }
  }
  return undefined;
}

/** Reads on in a buffer; throws at its end. */
class Cursor {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get atEnd(): boolean {
    return this.#at >= this.#bytes.length;
  }

  number(size: 1 | 2): number {
    const value = this.#bytes.readUIntBE(this.#at, size);
    this.#at += size;
    return value;
  }

  skip(size: number): void {
    if (this.#at + size > this.#bytes.length) throw new RangeError('cut short');
    this.#at += size;
  }

  part(size: number): Cursor {
    const from = this.#at;
    this.skip(size);
    return new Cursor(this.#bytes.subarray(from, from + size));
  }

  text(): string {
    return this.#bytes.toString('latin1');
  }
}
