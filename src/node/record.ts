import { closeSync, constants, fstatSync, mkdirSync, openSync, renameSync, writeFileSync, writeSync } from 'node:fs';
import { open, readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import type { RuntimeName } from '../core/config.ts';
import type { Layout } from './layout.ts';
import type { NetworkPolicy } from './network/policy.ts';

export interface Resources {
  cpuCount: number;
  memoryMb: number;
  diskSizeMb: number;
  pidsMax: number;
}

/** What is set inside a sandbox when it comes up. */
export interface GuestConfig {
  env: Record<string, string>;
  defaultUser: string;
  defaultWorkdir: string;
}

/** What this machine knows of a sandbox, kept in its directory so that a service that starts again finds it. */
export interface SandboxRecord {
  id: string;
  runtime: RuntimeName;
  templateId: string;
  buildId: string;
  /** Names of the layers, lowest first. */
  layers: string[];
  resources: Resources;
  guest: GuestConfig;
  /** What it may reach; undefined: everything. */
  network?: NetworkPolicy;
  /** The agent program it was booted with. */
  agentFile: string;
  /** Index of the network slot; undefined while it has none. */
  slot: number | undefined;
  /** Secret of the agent, 64 hex digits. */
  secret: string;
  /** The process whose end is the end of the sandbox; 0 while there is none. */
  pid: number;
  /** `booting` until it is up once; `pooled` while it waits for somebody; a paused one is held in memory, or kept on disk, or both. */
  state: 'booting' | 'pooled' | 'running' | 'paused';
  /** Set before it is held still, so that one that was caught in the middle is let go on. */
  held: boolean;
}

/** The records of all sandboxes on this machine. A record is written before anything else is made for its sandbox. */
export class Records {
  readonly #layout: Layout;

  constructor(layout: Layout) {
    this.#layout = layout;
  }

  async write(record: SandboxRecord): Promise<void> {
    const directory = this.#layout.sandboxDir(record.id);
    const file = path.join(directory, 'record.json');
    const text = JSON.stringify(record);
    // By blocking calls: it is small, and in the way of every create, where a turn through the thread pool takes several times as long.
    mkdirSync(directory, { recursive: true, mode: 0o711 });
    if (record.state !== 'paused' && writeInPlace(file, text)) return;
    writeFileSync(`${file}.new`, text, { mode: 0o600 });
    // Paused ones must be found after a loss of power; for running ones that would end them anyhow, the cost is not worth it.
    if (record.state === 'paused') await syncFile(`${file}.new`);
    renameSync(`${file}.new`, file);
  }

  /** Every sandbox directory with its record; undefined where it was made but its record never finished. */
  async all(): Promise<Map<string, SandboxRecord | undefined>> {
    const found = new Map<string, SandboxRecord | undefined>();
    for (const id of await readdir(this.#layout.sandboxesDir).catch(() => [])) found.set(id, await this.#read(id));
    return found;
  }

  async #read(id: string): Promise<SandboxRecord | undefined> {
    try {
      return JSON.parse(await readFile(path.join(this.#layout.sandboxDir(id), 'record.json'), 'utf8'));
    } catch {
      return undefined;
    }
  }
}

const PAGE_BYTES = 4096;

/**
 * Writes a file over what it was, by one call within one page, which is done or not done when the service is killed meanwhile. A file that is put in the place
 * of another is brought to disk at once, which took half a millisecond of every create. False where it does not fit.
 */
function writeInPlace(file: string, text: string): boolean {
  const page = Buffer.alloc(PAGE_BYTES, ' ');
  if (Buffer.byteLength(text) > PAGE_BYTES) return false;
  page.write(text);
  const fd = openSync(file, constants.O_WRONLY | constants.O_CREAT, 0o600);
  try {
    if (fstatSync(fd).size > PAGE_BYTES) return false;
    writeSync(fd, page, 0, PAGE_BYTES, 0);
    return true;
  } finally {
    closeSync(fd);
  }
}

async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
