import { SandbarError } from '../core/errors.ts';

/** One part of a multipart body (RFC 7578). Its body must be read, or is skipped, before the next part comes. */
export interface Part {
  /** Field name. */
  name: string;
  /** As sent, directories included. */
  filename: string | undefined;
  body: AsyncIterable<Buffer>;
}

const MAX_HEADER_BYTES = 16 * 1024;
const HEADER_END = Buffer.from('\r\n\r\n');

/** The boundary that a Content-Type names. */
export function boundaryOf(contentType: string): string | undefined {
  const match = /;\s*boundary=(?:"([^"]+)"|([^\s;]+))/i.exec(contentType);
  return match?.[1] ?? match?.[2];
}

/**
 * The parts of a body as they arrive. Nothing is held but the chunk at hand and the few bytes that may be the beginning of a
 * boundary. Most parsers cut the directories off file names; here they say where a file goes.
 */
export async function* parseMultipart(body: AsyncIterable<Buffer>, boundary: string): AsyncGenerator<Part> {
  const source = new Source(body);
  const delimiter = Buffer.from(`\r\n--${boundary}`);
  // The first boundary has no line break before it: one is put there, so that all are alike.
  source.prepend(Buffer.from('\r\n'));
  for await (const _preamble of source.until(delimiter)) {
    // What stands before the first boundary means nothing.
  }
  while (!(await isLast(source))) {
    const headers = parseHeaders(await source.block(HEADER_END, MAX_HEADER_BYTES));
    const disposition = parseDisposition(headers.get('content-disposition') ?? '');
    const bytes = source.until(delimiter);
    yield { name: disposition.get('name') ?? '', filename: disposition.get('filename'), body: bytes };
    for await (const _rest of bytes) {
      // The reader left early: the next part begins after what it did not want.
    }
  }
}

/** After a boundary: `--` ends the body, a line break begins a part (kept, since a part without headers begins with two). */
async function isLast(source: Source): Promise<boolean> {
  const mark = await source.take(2);
  if (mark.toString('latin1') === '--') return true;
  if (mark.toString('latin1') !== '\r\n') throw malformed('a boundary is followed by neither a line break nor its end');
  source.prepend(mark);
  return false;
}

function parseHeaders(block: Buffer): Map<string, string> {
  const headers = new Map<string, string>();
  for (const line of block.toString('utf8').split('\r\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) headers.set(line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim());
  }
  return headers;
}

/** Parameters of a Content-Disposition. */
export function parseDisposition(value: string): Map<string, string> {
  const parameters = new Map<string, string>();
  const pattern = /;\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))/g;
  for (const [, name = '', quoted, bare] of value.matchAll(pattern)) {
    const key = name.toLowerCase();
    if (key === 'filename*') {
      const encoded = /^utf-8'[^']*'(.*)$/i.exec(bare ?? quoted ?? '');
      if (encoded?.[1] !== undefined) parameters.set('filename', percentDecoded(encoded[1]));
    } else if (!(key === 'filename' && parameters.has('filename'))) {
      parameters.set(key, quoted === undefined ? (bare ?? '') : unquoted(quoted));
    }
  }
  return parameters;
}

/** Clients write a quote as `\"` or, as browsers do, `%22`, and line breaks as `%0D%0A`; any other backslash is itself. */
function unquoted(text: string): string {
  return text
    .replace(/\\(["\\])/g, '$1')
    .replace(/%(22|0d|0a)/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw malformed('a file name is not UTF-8');
  }
}

/** A byte stream that can be read up to a mark. */
class Source {
  readonly #chunks: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(body: AsyncIterable<Buffer>) {
    this.#chunks = body[Symbol.asyncIterator]();
  }

  prepend(bytes: Buffer): void {
    this.#held = this.#held.length === 0 ? bytes : Buffer.concat([bytes, this.#held]);
  }

  /** Everything up to the mark, which is taken away too. */
  async *until(mark: Buffer): AsyncGenerator<Buffer> {
    for (;;) {
      const at = this.#held.indexOf(mark);
      if (at >= 0) {
        const last = this.#held.subarray(0, at);
        this.#held = this.#held.subarray(at + mark.length);
        if (last.length > 0) yield last;
        return;
      }
      // The end of what is held may be the beginning of the mark.
      const safe = this.#held.length - (mark.length - 1);
      if (safe > 0) {
        const ready = this.#held.subarray(0, safe);
        this.#held = this.#held.subarray(safe);
        yield ready;
      }
      await this.#more();
    }
  }

  async block(mark: Buffer, limitBytes: number): Promise<Buffer> {
    for (;;) {
      const at = this.#held.indexOf(mark);
      if (at > limitBytes || (at < 0 && this.#held.length > limitBytes))
        throw malformed('the headers of a part are too long');
      if (at >= 0) {
        const block = this.#held.subarray(0, at);
        this.#held = this.#held.subarray(at + mark.length);
        return block;
      }
      await this.#more();
    }
  }

  async take(count: number): Promise<Buffer> {
    while (this.#held.length < count) await this.#more();
    const taken = this.#held.subarray(0, count);
    this.#held = this.#held.subarray(count);
    return taken;
  }

  async #more(): Promise<void> {
    const next = await this.#chunks.next();
    if (next.done) throw malformed('the body ends before its last boundary');
    this.#held = this.#held.length === 0 ? next.value : Buffer.concat([this.#held, next.value]);
  }
}

function malformed(why: string): SandbarError {
  return new SandbarError('invalid', `error parsing multipart form: ${why}`);
}
