import { expect, it, vi } from 'vitest';
import { describeOnBothStores } from '../../tests/support/databases.ts';
import { rowOf } from '../../tests/support/rows.ts';
import { Log } from '../core/log.ts';
import type { Database } from '../db/database.ts';
import { HistoryStore } from '../db/history-store.ts';
import { SandboxEventStore } from '../db/sandbox-event-store.ts';
import { SandboxLogStore } from '../db/sandbox-log-store.ts';
import { History } from './history.ts';

const row = rowOf({ id: 'i1', teamId: 'team', metadata: { a: 'b' } });
const lines = { sandboxId: 'i1', teamId: 'team', direction: 'forward', cursor: null, limit: 1000 } as const;
const everything = { ...lines, leastLevel: 0, search: '' };
const events = { teamId: 'team', sandboxId: 'i1', types: [], offset: 0, limit: 100, ascending: true };

describeOnBothStores('history', (stores) => {
  async function open(): Promise<{ db: Database; history: History; logs: SandboxLogStore; store: SandboxEventStore }> {
    const db = await stores.open();
    const logs = new SandboxLogStore(db);
    const store = new SandboxEventStore(db);
    const history = new History({
      store: new HistoryStore(db),
      events: store,
      logs,
      teamOf: async () => 'team',
      log: new Log('error'),
    });
    return { db, history, logs, store };
  }

  it('is the story of a sandbox in order, with what ended it last', async () => {
    const { history } = await open();
    history.created(row);
    history.paused(row, { memory: true, by: 'timeout' });
    history.resumed({ ...row, startedAt: 5 }, { memory: false, detail: 'no memory', by: 'traffic' });
    await history.killed({ ...row, startedAt: 5 }, 'oom', 'too much');
    const told = await history.listLines(everything);
    expect(told.map(({ message }) => message)).toEqual([
      'sandbox created',
      'sandbox paused at its deadline: its memory is kept',
      'sandbox resumed by traffic with its files alone: no memory',
      'sandbox killed for want of memory: too much',
    ]);
    expect(told.at(-1)).toMatchObject({ level: 3, fields: { reason: 'oom' } });
    const happened = await history.listEvents(events);
    expect(happened.map(({ type }) => type.replace('sandbox.lifecycle.', ''))).toEqual([
      'created',
      'paused',
      'resumed',
      'killed',
    ]);
    expect(happened[3]?.data).toMatchObject({ reason: 'oom', detail: 'too much', sandbox_metadata: { a: 'b' } });
    expect(happened[0]?.executionId).toBe(happened[1]?.executionId);
    expect(happened[2]?.executionId).not.toBe(happened[1]?.executionId);
    expect([await history.wasKilled(row), await history.wasKilled(rowOf({ id: 'i2', teamId: 'team' }))]).toEqual([
      true,
      false,
    ]);
  });

  it('gives every line of a sandbox a time of its own, in order', async () => {
    const { history } = await open();
    for (let index = 0; index < 30; index++) history.snapshotted(row, `s${index}`);
    const told = await history.listLines(everything);
    expect(told.map(({ fields }) => fields['snapshotID'])).toEqual(Array.from({ length: 30 }, (_, i) => `s${i}`));
    expect(new Set(told.map(({ createdAt }) => createdAt)).size).toBe(30);
  });

  it('lets a noisy sandbox say only so much, and says how much was left out', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: 1_000_000 });
    try {
      const { history } = await open();
      for (let index = 0; index < 100; index++) history.note('i1', 'warn', `denied ${index}`);
      await vi.waitFor(async () => expect(await history.listLines(everything)).toHaveLength(60));
      vi.setSystemTime(1_000_000 + 61_000);
      history.note('i1', 'warn', 'denied again');
      await vi.waitFor(async () => {
        const told = (await history.listLines(everything)).map(({ message }) => message);
        expect(told.slice(-2)).toEqual(['40 messages were left out', 'denied again']);
      });
    } finally {
      vi.useRealTimers();
    }
  });

  it('keeps a thousand lines of a sandbox, and is bounded in all', async () => {
    const { history, logs, store } = await open();
    for (let index = 0; index < 1_400; index++) history.snapshotted(row, `s${index}`);
    await history.written();
    const told = await history.listLines({ ...everything, limit: 2000 });
    expect(told.length).toBeLessThan(1_200);
    expect(told.at(-1)?.fields['snapshotID']).toBe('s1399');
    await logs.prune(0, 100);
    expect(await history.listLines(everything)).toHaveLength(100);
    await store.prune(0, 50);
    expect((await history.listEvents(events)).length).toBeLessThanOrEqual(100);
    await logs.prune(Date.now() + 60_000, 100);
    expect(await history.hasLines('i1', 'team')).toBe(false);
  });

  it('is read forward and backward, by level and by words', async () => {
    const { history } = await open();
    history.created(row);
    history.resumed(row, { memory: false, detail: '100%', by: 'user' });
    const read = async (change: object) =>
      (await history.listLines({ ...everything, ...change })).map(({ message }) => message);
    const [first = '', second = ''] = await read({});
    expect(await read({ direction: 'backward' })).toEqual([second, first]);
    expect(await read({ leastLevel: 2 })).toEqual([second]);
    expect(await read({ search: 'created' })).toEqual([first]);
    expect(await read({ search: '100%' })).toEqual([second]);
    expect(await read({ search: '%' })).toEqual(await read({ search: '_' }));
    expect(await read({ teamId: 'others' })).toEqual([]);
  });
});
