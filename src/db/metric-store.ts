import type { Database } from './database.ts';
import type { MetricRow } from './schema.ts';

/** What sandboxes and teams used: rings with a fixed number of slots, so that nothing grows with their age. */
export class MetricStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Writes samples over what was in their slots. */
  async put(rows: readonly MetricRow[]): Promise<void> {
    if (rows.length === 0) return;
    await this.#db
      .insertInto('metrics')
      .values([...rows])
      .onConflict((conflict) =>
        conflict.columns(['subject', 'stepSeconds', 'slot']).doUpdateSet((row) => ({
          createdAt: row.ref('excluded.createdAt'),
          sample: row.ref('excluded.sample'),
        })),
      )
      .execute();
  }

  /** The samples of one ring, oldest first. */
  range(subject: string, stepSeconds: number, from: number, to: number): Promise<MetricRow[]> {
    return this.#db
      .selectFrom('metrics')
      .selectAll()
      .where('subject', '=', subject)
      .where('stepSeconds', '=', stepSeconds)
      .where('createdAt', '>=', from)
      .where('createdAt', '<=', to)
      .orderBy('createdAt')
      .execute();
  }

  /** The newest sample of each subject that has one in this ring since `from`. */
  async latest(subjects: readonly string[], stepSeconds: number, from: number): Promise<MetricRow[]> {
    if (subjects.length === 0) return [];
    const found = await this.#db
      .selectFrom('metrics')
      .selectAll()
      .where('subject', 'in', subjects)
      .where('stepSeconds', '=', stepSeconds)
      .where('createdAt', '>=', from)
      .orderBy('createdAt')
      .execute();
    return [...new Map(found.map((row) => [row.subject, row])).values()];
  }

  /** Forgets all that is older than `before`, and what is older than `orphanedBefore` of sandboxes and teams that are gone. */
  async prune(before: number, orphanedBefore: number): Promise<void> {
    await this.#db.deleteFrom('metrics').where('createdAt', '<', before).execute();
    await this.#db
      .deleteFrom('metrics')
      .where('createdAt', '<', orphanedBefore)
      .where('subject', 'not in', (nested) => nested.selectFrom('sandboxes').select('id'))
      .where('subject', 'not in', (nested) => nested.selectFrom('teams').select('id'))
      .execute();
  }
}
