import type { Database } from './database.ts';
import { type SandboxLogRow, sandboxLogColumns } from './schema.ts';

export interface SandboxLogQuery {
  sandboxId: string;
  teamId: string;
  /** Forward: lines of this time and later, oldest first. Backward: of this time and earlier, newest first. */
  direction: 'forward' | 'backward';
  /** null: from the beginning, or back from the end. */
  cursor: number | null;
  limit: number;
  /** Lines of this level and worse (see SandboxLogRow). */
  leastLevel: number;
  /** Only lines whose message holds this text; empty: all. */
  search: string;
}

/** The logs of sandboxes, ended ones included. Bounded by `trim` and `prune`. */
export class SandboxLogStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async list(query: SandboxLogQuery): Promise<SandboxLogRow[]> {
    const forward = query.direction === 'forward';
    let lines = this.#db
      .selectFrom('sandboxLogs')
      .selectAll()
      .where('sandboxId', '=', query.sandboxId)
      .where('teamId', '=', query.teamId)
      .where('level', '>=', query.leastLevel);
    if (query.cursor !== null) lines = lines.where('createdAt', forward ? '>=' : '<=', query.cursor);
    if (query.search !== '') lines = lines.where('message', 'like', `%${escapeLike(query.search)}%`);
    const found = await lines
      .orderBy('createdAt', forward ? 'asc' : 'desc')
      .limit(query.limit)
      .execute();
    return found.map((stored) => sandboxLogColumns.decode(stored));
  }

  /** Whether the team has lines of the sandbox. */
  async has(sandboxId: string, teamId: string): Promise<boolean> {
    const line = await this.#db
      .selectFrom('sandboxLogs')
      .select('createdAt')
      .where('sandboxId', '=', sandboxId)
      .where('teamId', '=', teamId)
      .limit(1)
      .executeTakeFirst();
    return line !== undefined;
  }

  /** Keeps only the newest `most` lines of a sandbox. */
  async trim(sandboxId: string, most: number): Promise<void> {
    const oldestKept = await this.#db
      .selectFrom('sandboxLogs')
      .select('createdAt')
      .where('sandboxId', '=', sandboxId)
      .orderBy('createdAt', 'desc')
      .limit(1)
      .offset(most - 1)
      .executeTakeFirst();
    if (oldestKept === undefined) return;
    await this.#db
      .deleteFrom('sandboxLogs')
      .where('sandboxId', '=', sandboxId)
      .where('createdAt', '<', oldestKept.createdAt)
      .execute();
  }

  /** Forgets what is older than `before`, and all but the newest `most` lines of all sandboxes together. */
  async prune(before: number, most: number): Promise<void> {
    await this.#db.deleteFrom('sandboxLogs').where('createdAt', '<', before).execute();
    const oldestKept = await this.#db
      .selectFrom('sandboxLogs')
      .select('createdAt')
      .orderBy('createdAt', 'desc')
      .limit(1)
      .offset(most - 1)
      .executeTakeFirst();
    if (oldestKept !== undefined)
      await this.#db.deleteFrom('sandboxLogs').where('createdAt', '<', oldestKept.createdAt).execute();
  }
}

/** Text without the signs that LIKE reads; each stands for one of any kind instead, which finds no less. */
function escapeLike(text: string): string {
  return text.replaceAll(/[%_\\]/g, '_');
}
