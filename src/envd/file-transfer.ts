import type { Agent } from '../agent/contract.ts';
import { freeMemory } from '../core/free-memory.ts';

/** Bytes asked for or written in one request to the agent. */
const CHUNK_BYTES = 1024 * 1024;
/** Requests of one transfer that are under way at a time: enough to hide the way there, few enough to keep memory flat. */
const READS_AHEAD = 2;
const WRITES_AHEAD = 3;

interface Reading {
  pieces: AsyncIterableIterator<Buffer>;
  first: Promise<IteratorResult<Buffer>>;
}

/** The bytes of an opened file from `start` to `end`, in the socket's own pieces, the next chunk asked for while one is sent. */
export async function* readFileRange(
  agent: Agent,
  handle: number,
  start: number,
  end: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const ahead: Reading[] = [];
  let present: Reading | undefined;
  let asked = start;
  const askAhead = () => {
    while (ahead.length < READS_AHEAD && asked < end) {
      const length = Math.min(CHUNK_BYTES, end - asked);
      const pieces = agent.readAt(handle, asked, length, signal);
      const first = pieces.next();
      // It is awaited in its turn; until then a failure must not count as unhandled.
      first.catch(() => undefined);
      ahead.push({ pieces, first });
      asked += length;
    }
  };
  try {
    askAhead();
    for (let reading = ahead.shift(); reading !== undefined; reading = ahead.shift()) {
      askAhead();
      present = reading;
      for (let piece = await reading.first; !piece.done; piece = await reading.pieces.next()) yield piece.value;
    }
  } finally {
    // A reader that leaves early gives the connections back, also the one whose bytes have all arrived.
    for (const reading of [present, ...ahead]) void reading?.pieces.return?.().catch(() => undefined);
  }
}

/**
 * Writes a stream into an opened file from its beginning and gives its length; its pieces are of no use afterwards. When it ends, well or badly, no
 * write is under way any more: so none is abandoned when the client leaves, since the agent would carry it out all the same, at a time nobody knows.
 */
export async function writeFile(agent: Agent, handle: number, body: AsyncIterable<Buffer>): Promise<number> {
  const running = new Set<Promise<void>>();
  let failure: unknown;
  let failed = false;
  let offset = 0;
  let pieces: Buffer[] = [];
  let gathered = 0;
  const flush = async () => {
    while (running.size >= WRITES_AHEAD) await Promise.race(running);
    if (failed) throw failure;
    const written = pieces;
    const write = agent.writeAt(handle, offset, written).then(
      () => written.forEach(freeMemory),
      (error: unknown) => {
        failure = failed ? failure : error;
        failed = true;
      },
    );
    running.add(write);
    void write.finally(() => running.delete(write));
    offset += gathered;
    pieces = [];
    gathered = 0;
  };
  try {
    for await (const piece of body) {
      pieces.push(piece);
      gathered += piece.length;
      if (gathered >= CHUNK_BYTES) await flush();
    }
    if (gathered > 0) await flush();
  } finally {
    await Promise.all(running);
  }
  if (failed) throw failure;
  return offset;
}
