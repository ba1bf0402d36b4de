import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Log } from '../core/log.ts';
import { openDatabase, openDurability } from './database.ts';

describe('durability', () => {
  const stateDir = mkdtempSync(path.join(tmpdir(), 'sandbar-durability-'));
  const config = { stateDir, databaseUrl: undefined };
  const log = new Log('error');
  afterAll(() => rmSync(stateDir, { recursive: true }));

  it('is waited for by many at once, and after the store has gone', async () => {
    const durability = openDurability(config, log);
    await durability.settled();
    const database = await openDatabase(config, log, { syncEachCommit: false });
    await Promise.all(Array.from({ length: 50 }, () => durability.settled()));
    await database.destroy();
    await durability.settled();
    await durability.stop();
  });

  it('is left to a database server', async () => {
    const durability = openDurability({ stateDir, databaseUrl: 'postgres://nowhere.invalid/x' }, log);
    await expect(durability.settled()).resolves.toBeUndefined();
    await durability.stop();
  });
});
