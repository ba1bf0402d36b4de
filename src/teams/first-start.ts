import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../core/config.ts';
import { errnoOf, SandbarError } from '../core/errors.ts';
import { newUuid } from '../core/ids.ts';
import type { TeamRow } from '../db/schema.ts';
import type { TeamStore } from '../db/team-store.ts';
import {
  ACCESS_TOKEN_PREFIX,
  API_KEY_PREFIX,
  type Credential,
  credentialOf,
  hashOf,
  newCredential,
} from './credentials.ts';

export const DEFAULT_SLUG = 'default';

/** What an operator is told at start. */
export interface FirstStart {
  team: TeamRow;
  /** True when this start made the team. */
  created: boolean;
  /** A key to paste: the configured one or the one made at first start. undefined when it was revoked or is kept elsewhere. */
  apiKey: string | undefined;
  accessToken: string | undefined;
}

/**
 * Makes the default team with a user, a key and an access token, unless it is there. The values are kept hashed; for the
 * operator they stand in two files of the state directory that only root reads.
 */
export async function ensureFirstTeam(
  store: TeamStore,
  config: Pick<Config, 'stateDir' | 'apiKey'>,
  now: number = Date.now(),
): Promise<FirstStart> {
  const keyFile = new CredentialFile(path.join(config.stateDir, 'api-key'), API_KEY_PREFIX);
  const tokenFile = new CredentialFile(path.join(config.stateDir, 'access-token'), ACCESS_TOKEN_PREFIX);
  let created = false;
  if ((await store.getTeamBySlug(DEFAULT_SLUG)) === undefined)
    created = await createFirstTeam(store, keyFile, tokenFile, config.apiKey, now);
  const team = await store.getTeamBySlug(DEFAULT_SLUG);
  if (team === undefined) throw new SandbarError('internal', 'the default team was made and is gone');
  if (config.apiKey !== undefined) await ensureConfiguredKey(store, team, config.apiKey, now);
  return {
    team,
    created,
    apiKey: config.apiKey ?? (await stillValid(keyFile.read(), (hash) => store.findKey(hash))),
    accessToken: await stillValid(tokenFile.read(), (hash) => store.findToken(hash)),
  };
}

async function createFirstTeam(
  store: TeamStore,
  keyFile: CredentialFile,
  tokenFile: CredentialFile,
  configuredKey: string | undefined,
  now: number,
): Promise<boolean> {
  // Files first: a crash in between must not leave a key that nobody knows. The next start then takes the file's value.
  const key =
    configuredKey === undefined
      ? keyFile.readOrMake()
      : keyFile.keepUnlessKept(credentialOf(API_KEY_PREFIX, configuredKey));
  const token = tokenFile.readOrMake();
  const teamId = newUuid();
  const userId = newUuid();
  const made = { createdAt: now, mask: key.mask };
  const created = await store.createFirst({
    team: { id: teamId, name: 'default', slug: DEFAULT_SLUG, createdAt: now },
    user: { id: userId, email: 'admin@sandbar.local', createdAt: now },
    key: { ...made, id: newUuid(), teamId, name: 'first key', hash: key.hash, createdBy: userId, lastUsed: null },
    token: { ...made, id: newUuid(), userId, name: 'first token', hash: token.hash, mask: token.mask },
  });
  if (!created) {
    // Another replica made the team with values of its own.
    keyFile.remove();
    tokenFile.remove();
  }
  return created;
}

/** A configured key works also when the team was made without it. */
async function ensureConfiguredKey(store: TeamStore, team: TeamRow, value: string, now: number): Promise<void> {
  const { hash, mask } = credentialOf(API_KEY_PREFIX, value);
  if ((await store.findKey(hash)) !== undefined) return;
  const name = 'configured key';
  await store.insertKey({
    id: newUuid(),
    teamId: team.id,
    name,
    hash,
    mask,
    createdAt: now,
    createdBy: null,
    lastUsed: null,
  });
}

async function stillValid(
  credential: Credential | undefined,
  find: (hash: string) => Promise<unknown>,
): Promise<string | undefined> {
  if (credential === undefined) return undefined;
  return (await find(credential.hash)) === undefined ? undefined : credential.value;
}

/** A file with one credential, readable by its owner alone. */
class CredentialFile {
  readonly #file: string;
  readonly #prefix: string;

  constructor(file: string, prefix: string) {
    this.#file = file;
    this.#prefix = prefix;
  }

  read(): Credential | undefined {
    try {
      const value = readFileSync(this.#file, 'utf8').trim();
      return hashOf(this.#prefix, value) === undefined ? undefined : credentialOf(this.#prefix, value);
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return undefined;
      throw error;
    }
  }

  readOrMake(): Credential {
    return this.read() ?? this.#write(newCredential(this.#prefix));
  }

  /** Writes the credential unless the file holds one, which may exist nowhere else. Returns the given one either way. */
  keepUnlessKept(credential: Credential): Credential {
    if (this.read() === undefined) this.#write(credential);
    return credential;
  }

  remove(): void {
    rmSync(this.#file, { force: true });
  }

  #write(credential: Credential): Credential {
    const temporary = `${this.#file}.${process.pid}`;
    mkdirSync(path.dirname(this.#file), { recursive: true });
    rmSync(temporary, { force: true });
    writeFileSync(temporary, `${credential.value}\n`, { mode: 0o600, flush: true });
    renameSync(temporary, this.#file);
    return credential;
  }
}
