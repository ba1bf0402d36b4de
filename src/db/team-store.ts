import type { Database } from './database.ts';
import {
  type AccessTokenRow,
  type ApiKeyRow,
  accessTokenColumns,
  apiKeyColumns,
  type TeamRow,
  type UserRow,
} from './schema.ts';
import type { Executor } from './statement.ts';

/** A key with the team it opens. */
export interface KeyAndTeam {
  key: ApiKeyRow;
  team: TeamRow;
}

/** A user's membership of a team. */
export interface Membership {
  team: TeamRow;
  isDefault: boolean;
}

/** A key as a list shows it. */
export interface ListedKey extends ApiKeyRow {
  creator: UserRow | null;
}

/** All that a first start makes. */
export interface FirstTeam {
  team: TeamRow;
  user: UserRow;
  key: ApiKeyRow;
  token: AccessTokenRow;
}

/** Teams, their users and the credentials of both. */
export class TeamStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Writes the first team and all that belongs to it, or nothing (false) when its slug exists already. */
  createFirst(first: FirstTeam): Promise<boolean> {
    return this.#db.transaction().execute(async (transaction) => {
      const { numInsertedOrUpdatedRows } = await transaction
        .insertInto('teams')
        .values(first.team)
        .onConflict((conflict) => conflict.column('slug').doNothing())
        .executeTakeFirst();
      if ((numInsertedOrUpdatedRows ?? 0n) === 0n) return false;
      await transaction.insertInto('users').values(first.user).execute();
      await transaction
        .insertInto('teamMembers')
        .values({ teamId: first.team.id, userId: first.user.id, isDefault: 1 })
        .execute();
      await insertKey(transaction, first.key);
      await transaction.insertInto('accessTokens').values(accessTokenColumns.encode(first.token)).execute();
      return true;
    });
  }

  getTeam(id: string): Promise<TeamRow | undefined> {
    return this.#db.selectFrom('teams').selectAll().where('id', '=', id).executeTakeFirst();
  }

  getTeamBySlug(slug: string): Promise<TeamRow | undefined> {
    return this.#db.selectFrom('teams').selectAll().where('slug', '=', slug).executeTakeFirst();
  }

  /** The teams of a user, the default one first. */
  async teamsOf(userId: string): Promise<Membership[]> {
    const found = await this.#db
      .selectFrom('teamMembers')
      .innerJoin('teams', 'teams.id', 'teamMembers.teamId')
      .selectAll('teams')
      .select('isDefault')
      .where('userId', '=', userId)
      .orderBy('isDefault', 'desc')
      .orderBy('teams.createdAt')
      .execute();
    return found.map(({ isDefault, ...team }) => ({ team, isDefault: isDefault === 1 }));
  }

  /** False when a key of this value exists already. */
  insertKey(key: ApiKeyRow): Promise<boolean> {
    return insertKey(this.#db, key);
  }

  async findKey(hash: string): Promise<KeyAndTeam | undefined> {
    const stored = await this.#db.selectFrom('apiKeys').selectAll().where('hash', '=', hash).executeTakeFirst();
    const team = stored && (await this.getTeam(stored.teamId));
    return stored && team && { key: apiKeyColumns.decode(stored), team };
  }

  /** The keys of a team, oldest first. */
  async listKeys(teamId: string): Promise<ListedKey[]> {
    const found = await this.#db
      .selectFrom('apiKeys')
      .selectAll()
      .where('teamId', '=', teamId)
      .orderBy('createdAt')
      .orderBy('id')
      .execute();
    const creators = new Map((await this.#users(found.flatMap((key) => key.createdBy ?? []))).map((u) => [u.id, u]));
    return found.map((stored) => ({
      ...apiKeyColumns.decode(stored),
      creator: (stored.createdBy !== null && creators.get(stored.createdBy)) || null,
    }));
  }

  /** False when the team has no such key. */
  async renameKey(teamId: string, keyId: string, name: string): Promise<boolean> {
    const result = await this.#db
      .updateTable('apiKeys')
      .set({ name })
      .where('id', '=', keyId)
      .where('teamId', '=', teamId)
      .executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }

  /** False when the team has no such key. */
  async deleteKey(teamId: string, keyId: string): Promise<boolean> {
    const result = await this.#db
      .deleteFrom('apiKeys')
      .where('id', '=', keyId)
      .where('teamId', '=', teamId)
      .executeTakeFirst();
    return result.numDeletedRows > 0n;
  }

  async setLastUsed(keyId: string, time: number): Promise<void> {
    await this.#db.updateTable('apiKeys').set({ lastUsed: time }).where('id', '=', keyId).execute();
  }

  async findToken(hash: string): Promise<{ token: AccessTokenRow; user: UserRow } | undefined> {
    const stored = await this.#db.selectFrom('accessTokens').selectAll().where('hash', '=', hash).executeTakeFirst();
    const [user] = stored === undefined ? [] : await this.#users([stored.userId]);
    return stored && user && { token: accessTokenColumns.decode(stored), user };
  }

  async #users(ids: string[]): Promise<UserRow[]> {
    if (ids.length === 0) return [];
    return this.#db.selectFrom('users').selectAll().where('id', 'in', ids).execute();
  }
}

async function insertKey(db: Executor, key: ApiKeyRow): Promise<boolean> {
  const result = await db
    .insertInto('apiKeys')
    .values(apiKeyColumns.encode(key))
    .onConflict((conflict) => conflict.column('hash').doNothing())
    .executeTakeFirst();
  return (result.numInsertedOrUpdatedRows ?? 0n) > 0n;
}
