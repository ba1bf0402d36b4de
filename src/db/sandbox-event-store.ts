import type { Database } from './database.ts';
import { type SandboxEventRow, sandboxEventColumns } from './schema.ts';

export interface SandboxEventQuery {
  teamId: string;
  /** null: of all sandboxes of the team. */
  sandboxId: string | null;
  /** Empty: of every type. */
  types: readonly string[];
  offset: number;
  limit: number;
  ascending: boolean;
}

/** What happened to sandboxes, ended ones included. Bounded by `prune`. */
export class SandboxEventStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async list(query: SandboxEventQuery): Promise<SandboxEventRow[]> {
    const order = query.ascending ? 'asc' : 'desc';
    let page = this.#db.selectFrom('sandboxEvents').selectAll().where('teamId', '=', query.teamId);
    if (query.sandboxId !== null) page = page.where('sandboxId', '=', query.sandboxId);
    if (query.types.length > 0) page = page.where('type', 'in', query.types);
    const found = await page
      .orderBy('createdAt', order)
      .orderBy('id', order)
      .limit(query.limit)
      .offset(query.offset)
      .execute();
    return found.map((stored) => sandboxEventColumns.decode(stored));
  }

  /** Forgets what is older than `before`, and of each team all but its newest `perTeam`. */
  async prune(before: number, perTeam: number): Promise<void> {
    await this.#db.deleteFrom('sandboxEvents').where('createdAt', '<', before).execute();
    const teams = await this.#db.selectFrom('sandboxEvents').select('teamId').distinct().execute();
    for (const { teamId } of teams) {
      const oldestKept = await this.#db
        .selectFrom('sandboxEvents')
        .select('createdAt')
        .where('teamId', '=', teamId)
        .orderBy('createdAt', 'desc')
        .limit(1)
        .offset(perTeam - 1)
        .executeTakeFirst();
      if (oldestKept === undefined) continue;
      await this.#db
        .deleteFrom('sandboxEvents')
        .where('teamId', '=', teamId)
        .where('createdAt', '<', oldestKept.createdAt)
        .execute();
    }
  }
}
