import { messageOf, SandbarError } from '../core/errors.ts';
import { randomText } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { SecretRow } from '../db/schema.ts';
import type { SecretCursor, SecretStore } from '../db/secret-store.ts';
import type { SecretValues } from './contract.ts';
import type { Seal } from './sealing.ts';

/** A secret without its value. */
export type SecretInfo = Omit<SecretRow, 'sealed' | 'teamId'>;

export interface SecretContent {
  value: string;
  metadata: Record<string, string>;
}

const ID_PREFIX = 'sec_';
const NAME = /^[a-zA-Z0-9_-]{1,128}$/;
const VALUE_BYTES = 64 * 1024;
const limits = { entries: 32, keyBytes: 128, valueBytes: 1024, totalBytes: 8192 };

/** The secrets of teams. A value goes in and is used by the service; it never comes back to a caller. */
export class Secrets implements SecretValues {
  readonly #store: SecretStore;
  readonly #seal: Seal;
  readonly #log: Log;
  #changed: (teamId: string, name: string) => void = () => undefined;

  constructor(store: SecretStore, seal: Seal, log: Log) {
    this.#store = store;
    this.#seal = seal;
    this.#log = log;
  }

  /** Hears of every secret that has another value from now on, or none. */
  onChange(changed: (teamId: string, name: string) => void): void {
    this.#changed = changed;
  }

  async create(teamId: string, givenName: string, content: SecretContent): Promise<SecretInfo> {
    const name = givenName.toLowerCase();
    if (!NAME.test(name) || name.startsWith(ID_PREFIX)) throw invalid();
    checkContent(content);
    const now = Date.now();
    const id = `${ID_PREFIX}${randomText(20)}`;
    const sealed = this.#seal.close(content.value, ownerOf(teamId, id));
    const row = { id, teamId, name, version: 1, sealed, metadata: content.metadata, createdAt: now, updatedAt: now };
    if (!(await this.#store.insert(row))) throw conflict();
    this.#changed(teamId, name);
    return infoOf(row);
  }

  /** Without metadata given, what there is stays. */
  async update(
    teamId: string,
    idOrName: string,
    value: string,
    metadata?: Record<string, string>,
  ): Promise<SecretInfo> {
    const before = await this.#get(teamId, idOrName);
    const content = { value, metadata: metadata ?? before.metadata };
    checkContent(content);
    const row: SecretRow = {
      ...before,
      version: before.version + 1,
      sealed: this.#seal.close(value, ownerOf(teamId, before.id)),
      metadata: content.metadata,
      updatedAt: Math.max(Date.now(), before.updatedAt + 1),
    };
    if (!(await this.#store.replace(row))) throw conflict();
    this.#changed(teamId, row.name);
    return infoOf(row);
  }

  async get(teamId: string, idOrName: string): Promise<SecretInfo> {
    return infoOf(await this.#get(teamId, idOrName));
  }

  async list(teamId: string, limit: number, after: SecretCursor | null): Promise<SecretInfo[]> {
    return (await this.#store.list(teamId, limit, after)).map(infoOf);
  }

  async destroy(teamId: string, idOrName: string): Promise<void> {
    const { id, name } = await this.#get(teamId, idOrName);
    if (!(await this.#store.delete(id))) throw missing();
    this.#changed(teamId, name);
  }

  async values(teamId: string, names: readonly string[]): Promise<Record<string, string>> {
    const values: Record<string, string> = {};
    for (const row of await this.#store.byNames(teamId, names)) {
      try {
        values[row.name] = this.#seal.open(row.sealed, ownerOf(teamId, row.id));
      } catch (error) {
        // Sealed with another key: it is as good as not there, and the operator must know.
        this.#log.error('a secret cannot be opened: was the key changed?', { secret: row.id, error: messageOf(error) });
      }
    }
    return values;
  }

  async #get(teamId: string, idOrName: string): Promise<SecretRow> {
    const row = await this.#store.get(teamId, idOrName.toLowerCase());
    if (row === undefined) throw missing();
    return row;
  }
}

function checkContent({ value, metadata }: SecretContent): void {
  const bytes = (text: string) => Buffer.byteLength(text);
  const entries = Object.entries(metadata);
  const total = entries.reduce((sum, [key, text]) => sum + bytes(key) + bytes(text), 0);
  const tooLarge = entries.some(([key, text]) => bytes(key) > limits.keyBytes || bytes(text) > limits.valueBytes);
  if (value === '' || bytes(value) > VALUE_BYTES) throw invalid();
  if (entries.length > limits.entries || total > limits.totalBytes || tooLarge) throw invalid();
}

function ownerOf(teamId: string, secretId: string): string {
  return `${teamId} ${secretId}`;
}

function infoOf({ sealed: _, teamId: __, ...info }: SecretRow): SecretInfo {
  return info;
}

function invalid(): SandbarError {
  return new SandbarError('invalid', 'Invalid secrets request');
}

function missing(): SandbarError {
  return new SandbarError('not_found', 'Secret not found');
}

function conflict(): SandbarError {
  return new SandbarError('conflict', 'Secret cannot be modified in its current state');
}
