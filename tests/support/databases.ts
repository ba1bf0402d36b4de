import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe } from 'vitest';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { startPostgres, type TestPostgres } from './postgres.ts';

/** What a suite that runs on both stores is given. */
export interface Stores {
  /** A fresh, migrated database; ended after the test. */
  open(): Promise<Database>;
  /** Configuration of a fresh, empty database, to be opened by the test as often as it likes. */
  freshConfig(): Promise<{ stateDir: string; databaseUrl: string | undefined }>;
}

/** Runs one suite on SQLite and on a real PostgreSQL. */
export function describeOnBothStores(name: string, suite: (stores: Stores) => void): void {
  describe.each(['sqlite', 'postgres'] as const)(`${name} on %s`, (dialect) => {
    let cluster: TestPostgres | undefined;
    const opened: Database[] = [];
    const directories: string[] = [];

    beforeAll(async () => {
      if (dialect === 'postgres') cluster = await startPostgres();
    }, 60_000);
    afterEach(async () => {
      for (const database of opened.splice(0)) await database.destroy();
    });
    afterAll(async () => {
      await cluster?.stop();
      for (const directory of directories) rmSync(directory, { recursive: true, force: true });
    });

    const freshConfig = async () => {
      const stateDir = mkdtempSync(path.join(tmpdir(), 'sandbar-db-'));
      directories.push(stateDir);
      return { stateDir, databaseUrl: await cluster?.freshDatabase() };
    };
    suite({
      freshConfig,
      async open() {
        const database = await openDatabase(await freshConfig());
        opened.push(database);
        return database;
      },
    });
  });
}
