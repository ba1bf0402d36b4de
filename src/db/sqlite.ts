import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { type DialectAdapter, SqliteAdapter, type SqliteDatabase, SqliteDialect, type SqliteStatement } from 'kysely';

export interface SqliteOptions {
  /** Whether a commit waits for the disk; else that is seen to elsewhere (durability.ts). */
  syncEachCommit: boolean;
}

/** Kysely's SQLite dialect on Node's own SQLite. */
export class NodeSqliteDialect extends SqliteDialect {
  constructor(file: string, options: SqliteOptions) {
    super({ database: openFile(file, options) });
  }

  override createAdapter(): DialectAdapter {
    return new TransactionalDdlAdapter();
  }
}

/** SQLite rolls back CREATE TABLE like any other write, so a migration that is cut short leaves nothing behind. */
class TransactionalDdlAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

/** How long a write waits for another process, e.g. the command line beside the service. */
const BUSY_TIMEOUT_MS = 10_000;

/** Distinct statements kept compiled. The stores have a few dozen; list filters add some. */
const STATEMENT_CACHE_SIZE = 200;

function openFile(file: string, { syncEachCommit }: SqliteOptions): SqliteDatabase {
  const database = new DatabaseSync(file, { enableForeignKeyConstraints: true, timeout: BUSY_TIMEOUT_MS });
  database.exec('pragma journal_mode = wal');
  // NORMAL may lose the last commits on power loss, and nothing else.
  database.exec(`pragma synchronous = ${syncEachCommit ? 'full' : 'normal'}`);
  const statements = new Map<string, SqliteStatement>();
  return {
    close: () => database.close(),
    prepare(sql) {
      const known = statements.get(sql);
      if (known !== undefined) return known;
      // A transaction that reads first and then writes fails at once (SQLITE_BUSY_SNAPSHOT) when another process wrote in
      // between; taking the write lock at its start makes it wait instead.
      const statement = adapt(database.prepare(sql === 'begin' ? 'begin immediate' : sql));
      const oldest = statements.keys().next().value;
      if (statements.size >= STATEMENT_CACHE_SIZE && oldest !== undefined) statements.delete(oldest);
      statements.set(sql, statement);
      return statement;
    },
  };
}

function adapt(statement: StatementSync): SqliteStatement {
  return {
    reader: statement.columns().length > 0,
    all: (parameters) => statement.all(...bound(parameters)),
    run: (parameters) => statement.run(...bound(parameters)),
    iterate: (parameters) => statement.iterate(...bound(parameters)),
  };
}

function bound(parameters: readonly unknown[]): SQLInputValue[] {
  return parameters as SQLInputValue[];
}
