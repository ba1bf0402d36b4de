import { existsSync, readFileSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { SandbarError } from '../core/errors.ts';
import { randomHex } from '../core/ids.ts';

const TEMPORARY_PREFIX = '.making-';

/**
 * One kind of thing that set-up makes for the machine: `<cacheDir>/<kind>/<key>/…`, with a file `current` that names the key in
 * use. A new one is made under a temporary name and renamed when it is whole. Older keys stay: sandboxes and snapshots made with
 * them still need them.
 */
export class ArtifactStore {
  readonly directory: string;

  constructor(cacheDir: string, kind: string) {
    this.directory = path.join(cacheDir, kind);
  }

  /** Directory of the one in use, if there is one. */
  current(): string | undefined {
    const pointer = path.join(this.directory, 'current');
    if (!existsSync(pointer)) return undefined;
    const directory = path.join(this.directory, readFileSync(pointer, 'utf8').trim());
    return existsSync(directory) ? directory : undefined;
  }

  has(key: string): boolean {
    return existsSync(path.join(this.directory, key));
  }

  /** Makes `<key>/` with `fill`, which is given a temporary directory, and points `current` at it. */
  async add(key: string, fill: (directory: string) => Promise<void>): Promise<string> {
    await mkdir(this.directory, { recursive: true });
    const temporary = path.join(this.directory, `${TEMPORARY_PREFIX}${randomHex(6)}`);
    const final = path.join(this.directory, key);
    await mkdir(temporary);
    try {
      await fill(temporary);
      await removeTree(final);
      await rename(temporary, final);
    } catch (error) {
      await removeTree(temporary);
      throw error;
    }
    await this.select(key);
    return final;
  }

  async select(key: string): Promise<void> {
    const pointer = path.join(this.directory, 'current');
    const temporary = path.join(this.directory, `${TEMPORARY_PREFIX}${randomHex(6)}`);
    await writeFile(temporary, `${key}\n`);
    await rename(temporary, pointer);
  }

  /** Removes what an interrupted run left. Only under the set-up lock: the temporary names of a live run look the same. */
  async removeLeftovers(): Promise<void> {
    if (!existsSync(this.directory)) return;
    for (const name of await readdir(this.directory))
      if (name.startsWith(TEMPORARY_PREFIX)) await removeTree(path.join(this.directory, name));
  }
}

/** Removes a directory tree, unless something is mounted in it: what lies behind a mount is not ours to delete. */
export async function removeTree(directory: string): Promise<void> {
  const mounts = await readFile('/proc/self/mountinfo', 'utf8');
  const inside = mounts
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .find((mount) => mount === directory || mount.startsWith(`${directory}/`));
  if (inside !== undefined)
    throw new SandbarError('failed_precondition', `${directory} is not removed: ${inside} is still mounted in it`);
  await rm(directory, { recursive: true, force: true });
}
