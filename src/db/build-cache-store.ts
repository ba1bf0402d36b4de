import type { Database } from './database.ts';
import { buildCacheColumns } from './schema.ts';

/** Which layers a piece of work is known to leave, by the hash of all that it depends on. */
export class BuildCacheStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** The layers, lowest first; undefined when the work was never done. Counts as a use. */
  async find(key: string, now: number): Promise<string[] | undefined> {
    const stored = await this.#db.selectFrom('buildCache').selectAll().where('key', '=', key).executeTakeFirst();
    if (stored === undefined) return undefined;
    await this.#db.updateTable('buildCache').set({ usedAt: now }).where('key', '=', key).execute();
    return buildCacheColumns.decode(stored).layers;
  }

  /** Remembers an outcome; a newer one takes the place of an older. */
  async put(key: string, layers: string[], now: number): Promise<void> {
    const row = buildCacheColumns.encode({ key, layers, createdAt: now, usedAt: now });
    await this.#db
      .insertInto('buildCache')
      .values(row)
      .onConflict((conflict) => conflict.column('key').doUpdateSet({ layers: row.layers, createdAt: now, usedAt: now }))
      .execute();
  }

  async forget(key: string): Promise<void> {
    await this.#db.deleteFrom('buildCache').where('key', '=', key).execute();
  }

  /** Forgets what was not used since a time. Resolves to how many that were. */
  async forgetUnusedSince(time: number): Promise<number> {
    const { numDeletedRows } = await this.#db.deleteFrom('buildCache').where('usedAt', '<', time).executeTakeFirst();
    return Number(numDeletedRows);
  }

  /** Every layer that is remembered. */
  async layers(): Promise<Set<string>> {
    const rows = await this.#db.selectFrom('buildCache').select('layers').execute();
    return new Set(rows.flatMap(({ layers }) => JSON.parse(layers) as string[]));
  }
}
