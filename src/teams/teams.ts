import { messageOf, SandbarError } from '../core/errors.ts';
import { newUuid } from '../core/ids.ts';
import { Log } from '../core/log.ts';
import type { ApiKeyRow, TeamRow, UserRow } from '../db/schema.ts';
import type { ListedKey, Membership, TeamStore } from '../db/team-store.ts';
import { ACCESS_TOKEN_PREFIX, API_KEY_PREFIX, hashOf, newCredential, sameHash } from './credentials.ts';
import { DEFAULT_SLUG } from './first-start.ts';

/** A user who proved who they are, with their teams. */
export interface AuthenticatedUser {
  user: UserRow;
  teams: Membership[];
}

/** A new key; `value` is shown this once. */
export interface CreatedKey {
  key: ApiKeyRow;
  value: string;
}

/** How long a found credential is believed without asking the store: a revocation by another process takes this long. */
const CACHE_MS = 3_000;
/** How exact `lastUsed` is: a key in constant use costs one write in this time. */
const LAST_USED_STEP_MS = 60_000;

/** Teams and who may act for them. */
export class Teams {
  readonly #store: TeamStore;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #keys: CredentialCache<{ key: ApiKeyRow; team: TeamRow }>;
  readonly #users: CredentialCache<AuthenticatedUser>;
  /** Writes of `lastUsed` under way. */
  readonly #writes = new Set<Promise<void>>();
  readonly #lastUsed = new Map<string, number>();

  constructor(store: TeamStore, log: Log = new Log(), now: () => number = Date.now) {
    this.#store = store;
    this.#log = log;
    this.#now = now;
    this.#keys = new CredentialCache(now);
    this.#users = new CredentialCache(now);
  }

  /** The team of an API key; unauthenticated when there is no such key. */
  async authenticateKey(value: string): Promise<TeamRow> {
    const hash = hashOf(API_KEY_PREFIX, value);
    const found = hash && (await this.#keys.get(hash, () => this.#findKey(hash)));
    if (!found)
      throw new SandbarError(
        'unauthenticated',
        'Invalid API key, please visit https://e2b.dev/docs/api-key for more information.',
      );
    this.#noteUse(found.key);
    return found.team;
  }

  /** The user of an access token; unauthenticated when there is no such token. */
  async authenticateToken(value: string): Promise<AuthenticatedUser> {
    const hash = hashOf(ACCESS_TOKEN_PREFIX, value);
    const found = hash && (await this.#users.get(hash, () => this.#findUser(hash)));
    if (!found) throw new SandbarError('unauthenticated', 'Invalid access token.');
    return found;
  }

  async defaultTeam(): Promise<TeamRow> {
    const team = await this.#store.getTeamBySlug(DEFAULT_SLUG);
    if (team === undefined)
      throw new SandbarError('internal', 'there is no default team: the service was never started');
    return team;
  }

  async createKey(teamId: string, name: string, createdBy: string | null = null): Promise<CreatedKey> {
    const { value, hash, mask } = newCredential(API_KEY_PREFIX);
    const key = { id: newUuid(), teamId, name, hash, mask, createdAt: this.#now(), createdBy, lastUsed: null };
    await this.#store.insertKey(key);
    return { key, value };
  }

  listKeys(teamId: string): Promise<ListedKey[]> {
    return this.#store.listKeys(teamId);
  }

  /** not_found when the team has no such key. */
  async renameKey(teamId: string, keyId: string, name: string): Promise<void> {
    if (!(await this.#store.renameKey(teamId, keyId, name))) throw noSuchKey(keyId);
  }

  /** From here on the key is refused: at once by this process, within seconds by others. */
  async revokeKey(teamId: string, keyId: string): Promise<void> {
    const deleted = await this.#store.deleteKey(teamId, keyId);
    this.#keys.clear();
    if (!deleted) throw noSuchKey(keyId);
  }

  /** Resolves when nothing is left to write. */
  async stop(): Promise<void> {
    await Promise.all(this.#writes);
  }

  async #findKey(hash: string): Promise<{ key: ApiKeyRow; team: TeamRow } | undefined> {
    const found = await this.#store.findKey(hash);
    return found !== undefined && sameHash(found.key.hash, hash) ? found : undefined;
  }

  async #findUser(hash: string): Promise<AuthenticatedUser | undefined> {
    const found = await this.#store.findToken(hash);
    if (found === undefined || !sameHash(found.token.hash, hash)) return undefined;
    return { user: found.user, teams: await this.#store.teamsOf(found.user.id) };
  }

  /** Written behind the request's back: nobody waits for it, and a failure is no reason to refuse the request. */
  #noteUse(key: ApiKeyRow): void {
    const now = this.#now();
    const noted = Math.max(this.#lastUsed.get(key.id) ?? 0, key.lastUsed ?? 0);
    if (now - noted < LAST_USED_STEP_MS) return;
    this.#lastUsed.set(key.id, now);
    const write = this.#store
      .setLastUsed(key.id, now)
      .catch((error: unknown) => this.#log.warn('the use of a key was not noted', { error: messageOf(error) }))
      .finally(() => this.#writes.delete(write));
    this.#writes.add(write);
  }
}

function noSuchKey(keyId: string): SandbarError {
  return new SandbarError('not_found', `API key '${keyId}' not found`);
}

/** Credentials that were found, for a short time. Ones that were not found are asked for each time, so it cannot be flooded. */
class CredentialCache<Value> {
  readonly #now: () => number;
  readonly #entries = new Map<string, { value: Value; until: number }>();
  /** Changes with every clear, so that a look-up begun before it does not bring the old answer back. */
  #generation = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  async get(hash: string, find: () => Promise<Value | undefined>): Promise<Value | undefined> {
    const known = this.#entries.get(hash);
    if (known !== undefined && known.until > this.#now()) return known.value;
    const generation = this.#generation;
    const value = await find();
    if (value === undefined) this.#entries.delete(hash);
    else if (generation === this.#generation) this.#entries.set(hash, { value, until: this.#now() + CACHE_MS });
    return value;
  }

  clear(): void {
    this.#generation++;
    this.#entries.clear();
  }
}
