import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { chmod } from 'node:fs/promises';
import path from 'node:path';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { messageOf, SandbarError } from '../core/errors.ts';
import type { Host } from './host.ts';

const RELEASES = 'https://storage.googleapis.com/gvisor/releases/release/latest';
const ANSWER_WITHIN_MS = 5_000;
const DOWNLOAD_WITHIN_MS = 600_000;

/** The official release of gVisor, checked against the checksum published beside it. */
export async function downloadRunscRelease(
  host: Host,
  directory: string,
  say: (text: string) => void,
): Promise<string> {
  const url = `${RELEASES}/${host.arch}/runsc`;
  const published = await get(`${url}.sha512`, ANSWER_WITHIN_MS);
  if (!published.ok) throw new SandbarError('unavailable', `${url}.sha512 answered ${published.status}`);
  const expected = (await published.text()).trim().split(/\s+/)[0] ?? '';
  if (!/^[0-9a-f]{128}$/.test(expected)) throw new SandbarError('unavailable', `${url}.sha512 holds no checksum`);

  const answer = await get(url, DOWNLOAD_WITHIN_MS);
  if (!answer.ok || answer.body === null) throw new SandbarError('unavailable', `${url} answered ${answer.status}`);
  const file = path.join(directory, 'runsc');
  const hash = createHash('sha512');
  let bytes = 0;
  const watch = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      bytes += chunk.length;
      say(`downloaded ${Math.round(bytes / 1e6)} MB`);
      done(null, chunk);
    },
  });
  await pipeline(Readable.fromWeb(answer.body), watch, createWriteStream(file));
  const found = hash.digest('hex');
  if (found !== expected)
    throw new SandbarError('unavailable', `the download of ${url} is damaged: its SHA-512 is ${found.slice(0, 16)}…`);
  await chmod(file, 0o755);
  return file;
}

async function get(url: string, withinMs: number): Promise<Response> {
  try {
    return await fetch(url, { signal: AbortSignal.timeout(withinMs) });
  } catch (error) {
    // fetch says only "fetch failed"; its cause says why.
    const why = error instanceof Error && error.cause !== undefined ? messageOf(error.cause) : messageOf(error);
    throw new SandbarError('unavailable', `${new URL(url).host} cannot be reached (${why})`, { cause: error });
  }
}
