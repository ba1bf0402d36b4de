import { existsSync } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { RuntimeName } from '../core/config.ts';
import { SandbarError } from '../core/errors.ts';
import type { Resources } from './record.ts';
import type { StartCommand } from './start-command.ts';

/** What an image says of itself. */
export interface ImageInfo {
  runtime: RuntimeName;
  /** Whether it holds memory; otherwise only files. */
  memory: boolean;
  /** Whether its files can be had without its memory. */
  files: boolean;
  layers: string[];
  resources: Resources;
  /** Secret that the agent in it expects. */
  secret: string;
  agentFile: string;
  /** Run in a sandbox that boots from it, where it holds no memory in which it runs. */
  start?: StartCommand;
  createdAt: number;
}

/**
 * A directory that holds a sandbox written down. It is made under another name, synced and renamed: one that is there is whole.
 */
export class Image {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  get exists(): boolean {
    return existsSync(path.join(this.directory, 'image.json'));
  }

  async info(): Promise<ImageInfo> {
    try {
      return JSON.parse(await readFile(path.join(this.directory, 'image.json'), 'utf8'));
    } catch (cause) {
      throw new SandbarError('internal', `the image at ${this.directory} cannot be read`, { cause });
    }
  }

  /** Writes the image, replacing an older one only when the new one is whole. A failure leaves the older one and nothing else. */
  async write(info: ImageInfo, fill: (directory: string) => Promise<void>): Promise<void> {
    const fresh = `${this.directory}.new`;
    await rm(fresh, { recursive: true, force: true });
    await mkdir(fresh, { recursive: true, mode: 0o700 });
    try {
      await fill(fresh);
      await writeFile(path.join(fresh, 'image.json'), JSON.stringify(info));
      await syncTree(fresh);
      // rename(2) does not replace a directory that has anything in it.
      const old = `${this.directory}.old`;
      await rm(old, { recursive: true, force: true });
      if (existsSync(this.directory)) await rename(this.directory, old);
      await rename(fresh, this.directory);
      await syncPath(path.dirname(this.directory));
      await rm(old, { recursive: true, force: true });
    } catch (error) {
      await rm(fresh, { recursive: true, force: true });
      throw error;
    }
  }

  /** Finishes what a crash interrupted: takes the older image back where the newer never came, and drops what is half made or half removed. */
  async recover(): Promise<void> {
    const old = `${this.directory}.old`;
    if (!existsSync(this.directory) && existsSync(path.join(old, 'image.json'))) await rename(old, this.directory);
    await rm(old, { recursive: true, force: true });
    await rm(`${this.directory}.new`, { recursive: true, force: true });
    if (!this.exists) await this.remove();
  }

  /** What says that it is an image goes first, so that one that is half removed when the service ends is none. */
  async remove(): Promise<void> {
    await rm(path.join(this.directory, 'image.json'), { force: true });
    await rm(this.directory, { recursive: true, force: true });
  }
}

async function syncTree(directory: string): Promise<void> {
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const child = path.join(directory, entry.name);
    if (entry.isDirectory()) await syncTree(child);
    else await syncPath(child);
  }
  await syncPath(directory);
}

async function syncPath(target: string): Promise<void> {
  const handle = await open(target, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
