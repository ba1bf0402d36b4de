import { describe, expect, it } from 'vitest';
import { describeOnBothStores } from '../../tests/support/databases.ts';
import type { ListQuery, SandboxRow, SandboxState } from '../sandboxes/contract.ts';
import { publicStateOf } from './public-state.ts';
import { SandboxStore } from './sandbox-store.ts';

const TEAM = 'f0000000-0000-4000-8000-000000000001';

function sandbox(id: string, change: Partial<SandboxRow> = {}): SandboxRow {
  return {
    id,
    teamId: TEAM,
    templateId: 'template',
    buildId: 'build',
    alias: null,
    state: 'running',
    startedAt: 1_000,
    endAt: 10_000,
    createdAt: 1_000,
    cpuCount: 2,
    memoryMb: 1024,
    diskSizeMb: 10240,
    envdVersion: '0.6.13',
    runtime: 'gvisor',
    secure: true,
    envdAccessToken: 'token',
    earlierTokens: [],
    trafficAccessToken: null,
    metadata: {},
    envVars: {},
    timeoutSeconds: 300,
    autoPause: false,
    autoPauseMemory: true,
    autoResume: false,
    allowInternetAccess: null,
    network: null,
    volumeMounts: [],
    memoryKept: true,
    endReason: null,
    snapshotId: null,
    ...change,
  };
}

function query(change: Partial<ListQuery> = {}): ListQuery {
  return {
    metadata: {},
    states: ['running', 'paused'],
    order: 'desc',
    startedAfter: null,
    templateId: null,
    limit: 100,
    cursor: null,
    ...change,
  };
}

describeOnBothStores('sandbox store', (stores) => {
  const open = async () => new SandboxStore(await stores.open());
  const ids = (rows: SandboxRow[]) => rows.map(({ id }) => id);

  it('gives back every field as it was stored', async () => {
    const store = await open();
    const rich = sandbox('i1', {
      alias: 'base',
      startedAt: 1_790_000_000_123,
      earlierTokens: ['older', 'oldest'],
      trafficAccessToken: 'traffic',
      metadata: { 'a b': 'c&d=e', '': 'empty', nul: '\u0000', ünï: '☃' },
      envVars: { A: 'x'.repeat(100_000) },
      allowInternetAccess: false,
      autoPause: true,
      network: {
        allowOut: ['1.1.1.1'],
        egressProxy: null,
        rules: { 'x.com': [{ transform: { headers: { a: 'b' } } }] },
      },
      volumeMounts: [{ name: 'v', path: '/v' }],
      snapshotId: 'snap',
      timeoutSeconds: 2_147_483_647,
    });
    await store.insert(rich);
    await store.insert(sandbox('i2', { secure: false, envdAccessToken: null }));
    expect(await store.get('i1')).toEqual(rich);
    expect(await store.get('i2')).toEqual(sandbox('i2', { secure: false, envdAccessToken: null }));
    expect(await store.get('i3')).toBeUndefined();
  });

  it('keeps metadata whose values are longer than an index entry, and in any number', async () => {
    const store = await open();
    const metadata = Object.fromEntries(Array.from({ length: 2_500 }, (_, n) => [`k${n}`, `v${n}`]));
    metadata['long'] = 'x'.repeat(50_000);
    await store.insert(sandbox('i1', { metadata }));
    const found = await store.list(TEAM, query({ metadata: { long: metadata['long'], k2499: 'v2499' } }));
    expect(ids(found.rows)).toEqual(['i1']);
  });

  it('updates what is given and nothing else', async () => {
    const store = await open();
    await store.insert(sandbox('i1'));
    expect(await store.update('i1', { endAt: 77, earlierTokens: ['t'], secure: false })).toBe(true);
    expect(await store.get('i1')).toEqual(sandbox('i1', { endAt: 77, earlierTokens: ['t'], secure: false }));
    expect(await store.update('i1', {})).toBe(true);
    expect(await store.update('gone', { endAt: 1 })).toBe(false);
  });

  it('lets one of many racing transitions win', async () => {
    const store = await open();
    await store.insert(sandbox('i1'));
    const won = await Promise.all(
      Array.from({ length: 10 }, (_, n) => store.compareAndSetState('i1', ['running'], 'killing', { endAt: n })),
    );
    expect(won.filter(Boolean)).toHaveLength(1);
    const row = await store.get('i1');
    expect(row).toMatchObject({ state: 'killing', endAt: won.indexOf(true) });
    expect(await store.compareAndSetState('i1', ['running', 'paused'], 'pausing')).toBe(false);
    expect(await store.compareAndSetState('none', ['running'], 'killing')).toBe(false);
  });

  it('deletes a sandbox with its metadata, so that the id can come again', async () => {
    const store = await open();
    await store.insert(sandbox('i1', { metadata: { a: '1' } }));
    expect(await store.delete('i1')).toBe(true);
    expect(await store.delete('i1')).toBe(false);
    await store.insert(sandbox('i1', { metadata: { a: '2' } }));
    expect((await store.list(TEAM, query({ metadata: { a: '1' } }))).rows).toEqual([]);
  });

  it('refuses a second sandbox of the same id and leaves the first whole', async () => {
    const store = await open();
    await store.insert(sandbox('i1', { metadata: { a: '1' } }));
    await expect(store.insert(sandbox('i1', { metadata: { b: '2' } }))).rejects.toThrow();
    expect(ids((await store.list(TEAM, query({ metadata: { b: '2' } }))).rows)).toEqual([]);
    expect(ids((await store.list(TEAM, query({ metadata: { a: '1' } }))).rows)).toEqual(['i1']);
  });

  it('lists newest first, equal times by id, and the oldest first on request', async () => {
    const store = await open();
    for (const [id, startedAt] of [
      ['ib', 2],
      ['ia', 2],
      ['ic', 3],
      ['id', 1],
    ] as const)
      await store.insert(sandbox(id, { startedAt }));
    await store.insert(sandbox('other', { teamId: 'another' }));
    expect(ids((await store.list(TEAM, query())).rows)).toEqual(['ic', 'ia', 'ib', 'id']);
    expect(ids((await store.list(TEAM, query({ order: 'asc' }))).rows)).toEqual(['id', 'ia', 'ib', 'ic']);
  });

  it.each(['asc', 'desc'] as const)('pages %s through everything once, whatever the page size', async (order) => {
    const store = await open();
    for (let n = 0; n < 11; n++) await store.insert(sandbox(`i${n}`, { startedAt: Math.floor(n / 3) }));
    const whole = ids((await store.list(TEAM, query({ order }))).rows);
    expect(whole).toHaveLength(11);
    for (const limit of [1, 2, 5, 11]) {
      const paged: string[] = [];
      let cursor: ListQuery['cursor'] = null;
      do {
        const page = await store.list(TEAM, query({ order, limit, cursor }));
        expect(page.rows.length).toBeLessThanOrEqual(limit);
        expect(page.totalRunning).toBe(11);
        paged.push(...ids(page.rows));
        cursor = page.next;
      } while (cursor !== null);
      expect(paged).toEqual(whole);
    }
  });

  it('shows each internal state as the outside knows it', async () => {
    const store = await open();
    const states: SandboxState[] = ['starting', 'running', 'snapshotting', 'pausing', 'paused', 'resuming', 'killing'];
    for (const state of states) await store.insert(sandbox(`i${state}`, { state }));
    const listed = async (...wanted: ListQuery['states']) =>
      ids((await store.list(TEAM, query({ states: wanted }))).rows).sort();
    expect(await listed('running')).toEqual(['irunning', 'isnapshotting']);
    expect(await listed('paused')).toEqual(['ipaused', 'ipausing', 'iresuming']);
    expect(await listed('running', 'paused')).toHaveLength(5);
    expect(await listed()).toEqual([]);
    expect((await store.list(TEAM, query({ states: ['paused'] }))).totalRunning).toBe(0);
    expect((await store.list(TEAM, query({ limit: 1 }))).totalRunning).toBe(2);
    expect(await store.countRunning(TEAM)).toBe(5);
    expect(await store.countRunning('another')).toBe(0);
    expect(ids(await store.allInStates(['starting', 'killing'])).sort()).toEqual(['ikilling', 'istarting']);
  });

  it('filters by metadata (all pairs, exactly), start and template', async () => {
    const store = await open();
    await store.insert(sandbox('i1', { metadata: { a: '1', b: '2' }, startedAt: 5 }));
    await store.insert(sandbox('i2', { metadata: { a: '1' }, startedAt: 6, templateId: 'own' }));
    await store.insert(sandbox('i3', { metadata: { a: '11', '1': 'a' }, startedAt: 7, state: 'paused' }));
    const found = async (change: Partial<ListQuery>) => ids((await store.list(TEAM, query(change))).rows);
    expect(await found({ metadata: { a: '1' } })).toEqual(['i2', 'i1']);
    expect(await found({ metadata: { a: '1', b: '2' } })).toEqual(['i1']);
    expect(await found({ metadata: { a: '2' } })).toEqual([]);
    expect(await found({ startedAfter: 6 })).toEqual(['i3', 'i2']);
    expect(await found({ templateId: 'own' })).toEqual(['i2']);
    expect((await store.list(TEAM, query({ startedAfter: 6 }))).totalRunning).toBe(1);
  });

  it('finds deadlines of running sandboxes, the longest overdue first', async () => {
    const store = await open();
    expect(await store.nextDeadline()).toBeNull();
    await store.insert(sandbox('i1', { endAt: 30 }));
    await store.insert(sandbox('i2', { endAt: 10 }));
    await store.insert(sandbox('i3', { endAt: 20 }));
    await store.insert(sandbox('i4', { endAt: 1, state: 'paused' }));
    expect(await store.nextDeadline()).toBe(10);
    expect(ids(await store.expired(20, 10))).toEqual(['i2', 'i3']);
    expect(ids(await store.expired(20, 1))).toEqual(['i2']);
    expect(await store.expired(9, 10)).toEqual([]);
  });

  it('holds a limit exactly when many insert at once', async () => {
    const db = await stores.open();
    await db.insertInto('teams').values({ id: TEAM, name: 't', slug: 't', createdAt: 0 }).execute();
    const store = new SandboxStore(db);
    const done = await Promise.all(
      Array.from({ length: 20 }, (_, n) => store.insertWithin(sandbox(`i${n}`, { state: 'starting' }), 7)),
    );
    expect(done.filter(Boolean)).toHaveLength(7);
    expect(await store.countRunning(TEAM)).toBe(7);
  });
});

describe('public states', () => {
  it('hide a sandbox that is starting or dying', () => {
    expect(publicStateOf('starting')).toBeUndefined();
    expect(publicStateOf('killing')).toBeUndefined();
    expect(publicStateOf('snapshotting')).toBe('running');
    expect(publicStateOf('pausing')).toBe('paused');
  });
});
