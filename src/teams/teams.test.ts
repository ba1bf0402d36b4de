import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { describeOnBothStores } from '../../tests/support/databases.ts';
import { openDatabase } from '../db/database.ts';
import { TeamStore } from '../db/team-store.ts';
import { credentialOf, hashOf, newCredential } from './credentials.ts';
import { ensureFirstTeam } from './first-start.ts';
import { Teams } from './teams.ts';

const FIXED = `e2b_${'0123456789'.repeat(4)}`;

describe('credentials', () => {
  it('are prefix and 40 hex digits, hashed over their bytes', () => {
    const { value, hash, mask } = credentialOf('e2b_', `e2b_${'00'.repeat(20)}`);
    expect(hash).toBe('$sha256$3kfJsn640wDbtfLDU+Yyw5MmLPBjQMT6fxtAxMvTb5A');
    expect(mask).toEqual({ prefix: 'e2b_', valueLength: 40, maskedValuePrefix: '00', maskedValueSuffix: '0000' });
    expect(hashOf('e2b_', value.toUpperCase().replace('E2B_', 'e2b_'))).toBe(hash);
    expect(newCredential('sk_e2b_').value).toMatch(/^sk_e2b_[0-9a-f]{40}$/);
  });

  it.each(['', 'e2b_', 'e2b_xyz', `e2b_${'0'.repeat(39)}`, `sk_e2b_${'0'.repeat(40)}`])('refuse %j', (value) => {
    expect(hashOf('e2b_', value)).toBeUndefined();
  });
});

describeOnBothStores('first start', (stores) => {
  async function opened() {
    const config = await stores.freshConfig();
    const database = await openDatabase(config);
    return { config: { ...config, apiKey: undefined as string | undefined }, database, store: new TeamStore(database) };
  }

  it('makes a team, a key and a token, and later starts print the same', async () => {
    const { config, database, store } = await opened();
    const first = await ensureFirstTeam(store, config);
    expect(first).toMatchObject({ created: true, team: { name: 'default', slug: 'default' } });
    expect(first.apiKey).toMatch(/^e2b_[0-9a-f]{40}$/);
    expect(first.accessToken).toMatch(/^sk_e2b_[0-9a-f]{40}$/);
    const file = path.join(config.stateDir, 'api-key');
    expect(readFileSync(file, 'utf8')).toBe(`${first.apiKey}\n`);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(await ensureFirstTeam(store, config)).toEqual({ ...first, created: false });

    const teams = new Teams(store);
    expect(await teams.authenticateKey(first.apiKey ?? '')).toEqual(first.team);
    expect(await teams.authenticateToken(first.accessToken ?? '')).toMatchObject({ teams: [{ isDefault: true }] });
    expect(await teams.defaultTeam()).toEqual(first.team);
    await teams.stop();
    await database.destroy();
  });

  it('takes a configured key, first or later', async () => {
    const { config, database, store } = await opened();
    const first = await ensureFirstTeam(store, { ...config, apiKey: FIXED });
    expect(first.apiKey).toBe(FIXED);
    const later = FIXED.replace('0123', 'aaaa');
    expect((await ensureFirstTeam(store, { ...config, apiKey: later })).apiKey).toBe(later);
    expect((await ensureFirstTeam(store, config)).apiKey).toBe(FIXED);
    const teams = new Teams(store);
    for (const key of [FIXED, later]) expect(await teams.authenticateKey(key)).toEqual(first.team);
    expect(await teams.listKeys(first.team.id)).toHaveLength(2);
    await teams.stop();
    await database.destroy();
  });

  it('does not print a key that was revoked', async () => {
    const { config, database, store } = await opened();
    const { team } = await ensureFirstTeam(store, config);
    const [key] = await store.listKeys(team.id);
    await store.deleteKey(team.id, key?.id ?? '');
    expect((await ensureFirstTeam(store, config)).apiKey).toBeUndefined();
    await database.destroy();
  });

  it('uses the key of a first start that was cut short', async () => {
    const { config, database, store } = await opened();
    writeFileSync(path.join(config.stateDir, 'api-key'), `${FIXED}\n`);
    writeFileSync(path.join(config.stateDir, 'access-token'), 'half wri');
    const first = await ensureFirstTeam(store, config);
    expect(first.apiKey).toBe(FIXED);
    expect(first.accessToken).toMatch(/^sk_e2b_/);
    await database.destroy();
  });

  it('leaves no file with a key that is not valid when another replica was first', async () => {
    const { config, database, store } = await opened();
    const other = (await stores.freshConfig()).stateDir;
    const made = await Promise.all([
      ensureFirstTeam(store, config),
      ensureFirstTeam(store, { stateDir: other, apiKey: undefined }),
    ]);
    expect(made.filter(({ created }) => created)).toHaveLength(1);
    for (const [n, stateDir] of [config.stateDir, other].entries())
      expect(existsSync(path.join(stateDir, 'api-key'))).toBe(made[n]?.created);
    await database.destroy();
  });
});

describeOnBothStores('teams', (stores) => {
  async function opened() {
    const store = new TeamStore(await stores.open());
    const { team } = await ensureFirstTeam(store, await stores.freshConfig().then((c) => ({ ...c, apiKey: FIXED })));
    const clock = { now: 1_000_000 };
    return { store, team, clock, teams: new Teams(store, undefined, () => clock.now) };
  }

  it('refuses what is not a key with the message clients know', async () => {
    const { teams } = await opened();
    for (const key of ['', 'nonsense', `e2b_${'f'.repeat(40)}`])
      await expect(teams.authenticateKey(key)).rejects.toMatchObject({
        kind: 'unauthenticated',
        message: expect.stringMatching(/^Invalid API key, please visit https:\/\/e2b.dev\/docs\/api-key/),
      });
    await expect(teams.authenticateToken(FIXED)).rejects.toMatchObject({ kind: 'unauthenticated' });
  });

  it('refuses a revoked key at once here and within seconds elsewhere', async () => {
    const { store, team, teams, clock } = await opened();
    const elsewhere = new Teams(store, undefined, () => clock.now);
    const { key, value } = await teams.createKey(team.id, 'ci');
    await teams.authenticateKey(value);
    await elsewhere.authenticateKey(value);
    await teams.revokeKey(team.id, key.id);
    await expect(teams.authenticateKey(value)).rejects.toThrow('Invalid API key');
    expect(await elsewhere.authenticateKey(value)).toEqual(team);
    clock.now += 5_000;
    await expect(elsewhere.authenticateKey(value)).rejects.toThrow('Invalid API key');
    await expect(teams.revokeKey(team.id, key.id)).rejects.toMatchObject({ kind: 'not_found' });
    await Promise.all([teams.stop(), elsewhere.stop()]);
  });

  it('notes the use of a key, not on every request', async () => {
    const { store, team, teams, clock } = await opened();
    const used = async () => {
      await teams.authenticateKey(FIXED);
      await teams.stop();
      return (await store.listKeys(team.id))[0]?.lastUsed;
    };
    expect(await used()).toBe(1_000_000);
    clock.now += 59_000;
    expect(await used()).toBe(1_000_000);
    clock.now += 1_000;
    expect(await used()).toBe(1_060_000);
  });

  it('lists and renames keys', async () => {
    const { team, teams } = await opened();
    const { key } = await teams.createKey(team.id, 'ci');
    await teams.renameKey(team.id, key.id, 'build');
    expect((await teams.listKeys(team.id)).map(({ name }) => name).sort()).toEqual(['build', 'first key']);
    await expect(teams.renameKey(team.id, 'none', 'x')).rejects.toMatchObject({ kind: 'not_found' });
  });
});
