import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { sql } from 'kysely';
import { expect, it } from 'vitest';
import { describeOnBothStores } from '../../tests/support/databases.ts';
import { openDatabase } from './database.ts';

const run = promisify(execFile);

describeOnBothStores('database', (stores) => {
  it('is made by several processes that start at once, and opened again', async () => {
    const config = await stores.freshConfig();
    const script = `
      const { openDatabase } = await import(${JSON.stringify(path.resolve(import.meta.dirname, 'database.ts'))});
      const database = await openDatabase(${JSON.stringify(config)});
      await database.insertInto('teams').values({ id: String(process.pid), name: '', slug: String(process.pid), createdAt: 0 }).execute();
      await database.destroy();`;
    const starts = Array.from({ length: 5 }, () =>
      run(process.execPath, ['--input-type=module', '--no-warnings', '-e', script]),
    );
    await Promise.all(starts);
    const database = await openDatabase(config);
    expect(await database.selectFrom('teams').selectAll().execute()).toHaveLength(5);
    await database.destroy();
  }, 60_000);

  it('rolls a failed transaction back', async () => {
    const database = await stores.open();
    const team = { id: 't', name: '', slug: 't', createdAt: 0 };
    const failed = database.transaction().execute(async (transaction) => {
      await transaction.insertInto('teams').values(team).execute();
      throw new Error('stop');
    });
    await expect(failed).rejects.toThrow('stop');
    expect(await database.selectFrom('teams').selectAll().execute()).toEqual([]);
  });

  it('enforces references', async () => {
    const database = await stores.open();
    const orphan = { pairHash: 'h', sandboxId: 'none' };
    await expect(database.insertInto('sandboxMetadata').values(orphan).execute()).rejects.toThrow(/foreign key/i);
  });
});

it('keeps SQLite in the state directory, made for power loss', async () => {
  const parent = mkdtempSync(path.join(tmpdir(), 'sandbar-db-'));
  const stateDir = path.join(parent, 'state');
  const database = await openDatabase({ stateDir, databaseUrl: undefined });
  const pragma = async (name: string) =>
    Object.values((await sql.raw(`pragma ${name}`).execute(database)).rows[0] ?? {})[0];
  expect(await pragma('journal_mode')).toBe('wal');
  expect(await pragma('synchronous')).toBe(2);
  expect(await pragma('foreign_keys')).toBe(1);
  expect(existsSync(path.join(stateDir, 'sandbar.db'))).toBe(true);
  // The file holds tokens of sandboxes: for the service alone.
  expect(statSync(path.join(stateDir, 'sandbar.db')).mode & 0o077).toBe(0);
  await database.destroy();
  rmSync(parent, { recursive: true });
});

it('says what is wrong when the database does not answer', async () => {
  const config = { stateDir: '/tmp', databaseUrl: 'postgres://x@127.0.0.1:1/none' };
  await expect(openDatabase(config)).rejects.toThrow(/the database cannot be opened: .*ECONNREFUSED/);
});
