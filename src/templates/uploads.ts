import { createHmac, randomBytes } from 'node:crypto';
import { createWriteStream, existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, statfs, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { matchesAny } from '../core/constant-time.ts';
import { SandbarError } from '../core/errors.ts';
import { openExpanded } from '../core/expanded-file.ts';
import { randomHex } from '../core/ids.ts';

/** What a link to upload to says about itself; the signature holds it together. */
export interface UploadTicket {
  teamId: string;
  filesHash: string;
  /** Milliseconds since 1970. */
  expiresAt: number;
  signature: string;
}

const TICKET_MS = 30 * 60_000;
const SPARE_BYTES = 256 * 1024 * 1024;

/** Archives of files that COPY steps take from, by team and by the hash that their maker chose for them. */
export class Uploads {
  readonly #directory: string;
  readonly #limitBytes: number;
  #secret: Buffer = Buffer.alloc(0);

  constructor(directory: string, limitBytes: number) {
    this.#directory = directory;
    this.#limitBytes = limitBytes;
  }

  /** Before anything else: finds the secret of the links, removes what was half uploaded. */
  async start(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const secretFile = path.join(this.#directory, '.secret');
    if (!existsSync(secretFile)) await writeFile(secretFile, randomBytes(32), { mode: 0o600 });
    this.#secret = await readFile(secretFile);
    for (const team of await this.#teams())
      for (const name of await readdir(path.join(this.#directory, team)))
        if (name.includes('.')) await rm(path.join(this.#directory, team, name), { force: true });
  }

  has(teamId: string, filesHash: string): boolean {
    return existsSync(this.#file(teamId, filesHash));
  }

  /** Leave to upload one archive, for half an hour. */
  ticket(teamId: string, filesHash: string): UploadTicket {
    const expiresAt = Date.now() + TICKET_MS;
    return { teamId, filesHash, expiresAt, signature: this.#sign(teamId, filesHash, expiresAt) };
  }

  /** Takes an archive in. It is there when all of it is. */
  async receive(ticket: UploadTicket, body: Readable, length: number | undefined): Promise<void> {
    const { teamId, filesHash, expiresAt, signature } = ticket;
    if (!matchesAny(signature, [this.#sign(teamId, filesHash, expiresAt)]))
      throw new SandbarError('forbidden', 'the signature of this upload link is wrong');
    if (Date.now() > expiresAt) throw new SandbarError('forbidden', 'this upload link has expired');
    await this.#refuseTooLarge(length);
    const file = this.#file(teamId, filesHash);
    const fresh = `${file}.${randomHex(6)}`;
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    try {
      const received = await this.#write(body, fresh);
      if (length !== undefined && received !== length)
        throw new SandbarError('invalid', `the upload ended after ${received} of ${length} bytes`);
      await rename(fresh, file);
    } catch (error) {
      await rm(fresh, { force: true });
      throw error;
    }
  }

  /** The archive, uncompressed where it came compressed; undefined when there is none. */
  async open(teamId: string, filesHash: string): Promise<Readable | undefined> {
    const file = this.#file(teamId, filesHash);
    if (!existsSync(file)) return undefined;
    const now = new Date();
    await utimes(file, now, now);
    return openExpanded(file);
  }

  /** Removes archives that no build has asked for since a time. Resolves to the bytes that became free. */
  async removeUnusedSince(time: number): Promise<number> {
    let freed = 0;
    for (const team of await this.#teams()) {
      for (const name of await readdir(path.join(this.#directory, team))) {
        const file = path.join(this.#directory, team, name);
        const { mtimeMs, size } = await stat(file);
        if (name.includes('.') || mtimeMs >= time) continue;
        await rm(file, { force: true });
        freed += size;
      }
    }
    return freed;
  }

  async #write(body: Readable, file: string): Promise<number> {
    let received = 0;
    const limit = this.#limitBytes;
    const counter = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        received += chunk.length;
        done(received > limit ? tooLarge(limit) : null, chunk);
      },
    });
    await pipeline(body, counter, createWriteStream(file, { mode: 0o600 }));
    return received;
  }

  async #refuseTooLarge(length: number | undefined): Promise<void> {
    if (length === undefined) return;
    if (length > this.#limitBytes) throw tooLarge(this.#limitBytes);
    const { bavail, bsize } = await statfs(this.#directory);
    if (bavail * bsize < length + SPARE_BYTES)
      throw new SandbarError('no_space', 'not enough disk space for the upload');
  }

  #sign(teamId: string, filesHash: string, expiresAt: number): string {
    return createHmac('sha256', this.#secret).update(`${teamId}\n${filesHash}\n${expiresAt}`).digest('hex');
  }

  #file(teamId: string, filesHash: string): string {
    if (!/^[0-9a-f-]+$/.test(teamId) || !/^[0-9a-f]{64}$/.test(filesHash))
      throw new SandbarError('invalid', `'${filesHash}' is not a hash of files`);
    return path.join(this.#directory, teamId, filesHash);
  }

  async #teams(): Promise<string[]> {
    const entries = await readdir(this.#directory, { withFileTypes: true }).catch(() => []);
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  }
}

function tooLarge(limitBytes: number): SandbarError {
  return new SandbarError('invalid', `the upload is larger than ${Math.floor(limitBytes / 1024 / 1024)} MB`);
}
