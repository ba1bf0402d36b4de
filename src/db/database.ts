import { closeSync, mkdirSync, openSync } from 'node:fs';
import path from 'node:path';
import { CamelCasePlugin, type Dialect, Kysely, PostgresDialect } from 'kysely';
import { Migrator } from 'kysely/migration';
import pg from 'pg';
import type { Config } from '../core/config.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { Log } from '../core/log.ts';
import { type Durability, settledAlready, WalDurability } from './durability.ts';
import { migrations } from './migrations/index.ts';
import type { Schema } from './schema.ts';
import { NodeSqliteDialect, type SqliteOptions } from './sqlite.ts';

export type Database = Kysely<Schema>;

type StoreConfig = Pick<Config, 'stateDir' | 'databaseUrl'>;

/** Opens the store, brings its tables up to date and returns it. The caller ends it with `destroy()`. */
export async function openDatabase(
  config: StoreConfig,
  log: Log = new Log(),
  options: SqliteOptions = { syncEachCommit: true },
): Promise<Database> {
  const dialect =
    config.databaseUrl === undefined ? sqlite(config.stateDir, options) : postgres(config.databaseUrl, log);
  const database = new Kysely<Schema>({ dialect, plugins: [new CamelCasePlugin()] });
  try {
    await migrate(database);
  } catch (error) {
    await database.destroy();
    throw new SandbarError('internal', `the database cannot be opened: ${messageOf(error)}`, { cause: error });
  }
  return database;
}

/** Sees to what a store that does not sync each commit leaves open. */
export function openDurability(config: StoreConfig, log: Log): Durability {
  return config.databaseUrl === undefined ? new WalDurability(fileIn(config.stateDir), log) : settledAlready;
}

function fileIn(stateDir: string): string {
  return path.join(stateDir, 'sandbar.db');
}

function sqlite(stateDir: string, options: SqliteOptions): Dialect {
  mkdirSync(stateDir, { recursive: true });
  const file = fileIn(stateDir);
  // It holds the tokens of sandboxes: for the service alone. SQLite gives its side files the same mode.
  closeSync(openSync(file, 'a', 0o600));
  return new NodeSqliteDialect(file, options);
}

const INT8_OID = 20;

function postgres(url: string, log: Log): Dialect {
  const pool = new pg.Pool({
    connectionString: url,
    max: 20,
    connectionTimeoutMillis: 10_000,
    types: {
      // pg hands out int8 as text for fear of precision. Ours are times and counts, below 2^53.
      getTypeParser: (oid, format) => (oid === INT8_OID ? Number : pg.types.getTypeParser(oid, format)),
    },
  });
  // An idle connection that breaks is replaced by the pool; without a listener the error would end the process.
  pool.on('error', (error) => log.warn('a database connection broke', { error: error.message }));
  return new PostgresDialect({ pool });
}

/**
 * Two replicas may start at once: on PostgreSQL the migrator holds an advisory lock, on SQLite its transaction holds the write
 * lock, so that the second finds the work done.
 */
async function migrate(database: Database): Promise<void> {
  const migrator = new Migrator({
    db: database,
    provider: { getMigrations: async () => migrations },
    migrationTableName: 'sandbar_migration',
    migrationLockTableName: 'sandbar_migration_lock',
  });
  const { error } = await migrator.migrateToLatest();
  if (error !== undefined) throw error;
}
