import type { Database } from './database.ts';
import { type SandboxEventRow, type SandboxLogRow, sandboxEventColumns, sandboxLogColumns } from './schema.ts';

/** Takes in what happened to sandboxes: many events and log lines in one transaction. */
export class HistoryStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** A log line whose sandbox and time are there already is passed over. */
  insert(events: readonly SandboxEventRow[], lines: readonly SandboxLogRow[]): Promise<void> {
    return this.#db.transaction().execute(async (transaction) => {
      if (events.length > 0)
        await transaction
          .insertInto('sandboxEvents')
          .values(events.map((row) => sandboxEventColumns.encode(row)))
          .execute();
      if (lines.length > 0)
        await transaction
          .insertInto('sandboxLogs')
          .values(lines.map((row) => sandboxLogColumns.encode(row)))
          .onConflict((conflict) => conflict.columns(['sandboxId', 'createdAt']).doNothing())
          .execute();
    });
  }
}
