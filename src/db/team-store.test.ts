import { expect, it } from 'vitest';
import { describeOnBothStores } from '../../tests/support/databases.ts';
import type { AccessTokenRow, ApiKeyRow } from './schema.ts';
import { TeamStore } from './team-store.ts';

const mask = { prefix: 'e2b_', valueLength: 40, maskedValuePrefix: 'ab', maskedValueSuffix: 'cdef' };
const team = { id: 'team-1', name: 'Default', slug: 'default', createdAt: 1 };
const user = { id: 'user-1', email: 'admin@localhost', createdAt: 1 };

function key(id: string, change: Partial<ApiKeyRow> = {}): ApiKeyRow {
  return {
    id,
    teamId: team.id,
    name: id,
    hash: `hash-${id}`,
    mask,
    createdAt: 1,
    createdBy: user.id,
    lastUsed: null,
    ...change,
  };
}

const token: AccessTokenRow = { id: 't1', userId: user.id, name: 'first', hash: 'token-hash', mask, createdAt: 1 };

describeOnBothStores('team store', (stores) => {
  const open = async () => {
    const store = new TeamStore(await stores.open());
    expect(await store.createFirst({ team, user, key: key('k1'), token })).toBe(true);
    return store;
  };

  it('makes the first team once, whole', async () => {
    const store = await open();
    const other = { ...team, id: 'team-2' };
    expect(await store.createFirst({ team: other, user, key: key('k2'), token })).toBe(false);
    expect(await store.getTeamBySlug('default')).toEqual(team);
    expect(await store.getTeam('team-2')).toBeUndefined();
    expect(await store.findKey('hash-k2')).toBeUndefined();
    expect(await store.teamsOf(user.id)).toEqual([{ team, isDefault: true }]);
    expect(await store.findToken('token-hash')).toEqual({ token, user });
    expect(await store.findToken('other')).toBeUndefined();
  });

  it('makes the first team once when replicas start together', async () => {
    const store = new TeamStore(await stores.open());
    const made = await Promise.all(
      [1, 2, 3, 4].map((n) =>
        store.createFirst({
          team: { ...team, id: `team-${n}` },
          user: { ...user, id: `user-${n}` },
          key: key(`k${n}`, { teamId: `team-${n}`, createdBy: `user-${n}` }),
          token: { ...token, id: `t${n}`, userId: `user-${n}`, hash: `h${n}` },
        }),
      ),
    );
    expect(made.filter(Boolean)).toHaveLength(1);
  });

  it('finds a key by its hash and forgets a deleted one', async () => {
    const store = await open();
    expect(await store.findKey('hash-k1')).toEqual({ key: key('k1'), team });
    expect(await store.insertKey(key('k2', { hash: 'hash-k1' }))).toBe(false);
    expect(await store.deleteKey('another team', 'k1')).toBe(false);
    expect(await store.deleteKey(team.id, 'k1')).toBe(true);
    expect(await store.findKey('hash-k1')).toBeUndefined();
    expect(await store.deleteKey(team.id, 'k1')).toBe(false);
  });

  it('lists keys, oldest first, with who made them and when they were used', async () => {
    const store = await open();
    await store.insertKey(key('k2', { createdAt: 2, createdBy: null }));
    await store.setLastUsed('k2', 99);
    expect(await store.renameKey(team.id, 'k1', 'renamed')).toBe(true);
    expect(await store.renameKey('another team', 'k1', 'x')).toBe(false);
    expect(await store.listKeys(team.id)).toEqual([
      { ...key('k1', { name: 'renamed' }), creator: user },
      { ...key('k2', { createdAt: 2, createdBy: null, lastUsed: 99 }), creator: null },
    ]);
  });
});
