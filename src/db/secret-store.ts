import type { Database } from './database.ts';
import { type SecretRow, secretColumns } from './schema.ts';

/** Position in the list: the last row already given. */
export interface SecretCursor {
  createdAt: number;
  id: string;
}

/** The secrets of teams, newest first. Values are sealed before they come here. */
export class SecretStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** False when the team has a secret of that name. */
  async insert(row: SecretRow): Promise<boolean> {
    const result = await this.#db
      .insertInto('secrets')
      .values(secretColumns.encode(row))
      .onConflict((conflict) => conflict.columns(['teamId', 'name']).doNothing())
      .executeTakeFirst();
    return (result.numInsertedOrUpdatedRows ?? 0n) > 0n;
  }

  /** By id or by name. */
  async get(teamId: string, idOrName: string): Promise<SecretRow | undefined> {
    const stored = await this.#db
      .selectFrom('secrets')
      .selectAll()
      .where('teamId', '=', teamId)
      .where((where) => where.or([where('id', '=', idOrName), where('name', '=', idOrName)]))
      .executeTakeFirst();
    return stored && secretColumns.decode(stored);
  }

  async byNames(teamId: string, names: readonly string[]): Promise<SecretRow[]> {
    if (names.length === 0) return [];
    const stored = await this.#db
      .selectFrom('secrets')
      .selectAll()
      .where('teamId', '=', teamId)
      .where('name', 'in', names)
      .execute();
    return stored.map(secretColumns.decode);
  }

  async list(teamId: string, limit: number, after: SecretCursor | null): Promise<SecretRow[]> {
    let query = this.#db.selectFrom('secrets').selectAll().where('teamId', '=', teamId);
    if (after !== null)
      query = query.where((where) =>
        where.or([
          where('createdAt', '<', after.createdAt),
          where.and([where('createdAt', '=', after.createdAt), where('id', '<', after.id)]),
        ]),
      );
    const stored = await query.orderBy('createdAt', 'desc').orderBy('id', 'desc').limit(limit).execute();
    return stored.map(secretColumns.decode);
  }

  /** Replaces a version by the next. False when another was quicker, or the secret is gone. */
  async replace(row: SecretRow): Promise<boolean> {
    const { id, version, ...change } = secretColumns.encode(row);
    const result = await this.#db
      .updateTable('secrets')
      .set({ ...change, version })
      .where('id', '=', id)
      .where('version', '=', version - 1)
      .executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }

  async delete(id: string): Promise<boolean> {
    const result = await this.#db.deleteFrom('secrets').where('id', '=', id).executeTakeFirst();
    return result.numDeletedRows > 0n;
  }
}
