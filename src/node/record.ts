import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { open, readdir, readFile, rm } from 'node:fs/promises';
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
    // Small, and in the way of every create: blocking calls take a fraction of a turn through the thread pool.
    mkdirSync(directory, { recursive: true, mode: 0o711 });
    writeFileSync(`${file}.new`, JSON.stringify(record), { mode: 0o600 });
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

  async remove(id: string): Promise<void> {
    await rm(this.#layout.sandboxDir(id), { recursive: true, force: true });
  }

  async #read(id: string): Promise<SandboxRecord | undefined> {
    try {
      return JSON.parse(await readFile(path.join(this.#layout.sandboxDir(id), 'record.json'), 'utf8'));
    } catch {
      return undefined;
    }
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
