import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { describeOnBothStores } from '../../tests/support/databases.ts';
import { MetricStore } from '../db/metric-store.ts';
import { Metrics, RINGS } from './metrics.ts';

const START = Date.UTC(2026, 0, 1);
const HOUR = 3_600_000;

describeOnBothStores('metrics', (stores) => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['Date'], now: START });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  async function open() {
    const db = await stores.open();
    return { db, metrics: new Metrics(new MetricStore(db)) };
  }

  /** A sample every five seconds for so long, written in batches as a clock that runs would. */
  async function live(metrics: Metrics, durationMs: number): Promise<void> {
    const samples = Array.from({ length: durationMs / 5000 }, (_, index) => ({
      subject: 'i1',
      at: START + index * 5000,
      sample: { n: index },
    }));
    for (let start = 0; start < samples.length; start += 700) await metrics.record(samples.slice(start, start + 700));
    vi.setSystemTime(START + durationMs);
  }

  it('are as fine as the time asked for allows, and never more than the rings hold', async () => {
    const { db, metrics } = await open();
    await live(metrics, 8 * HOUR);
    const now = Date.now();
    expect(await metrics.range('i1', now - 600_000, now)).toHaveLength(120);
    expect(await metrics.range('i1', now - 2 * HOUR, now)).toHaveLength(240);
    expect(await metrics.range('i1', START, now)).toHaveLength(96);
    // Ten minutes of seven hours ago are only in the coarse ring.
    expect(await metrics.range('i1', START + HOUR, START + HOUR + 600_000)).toHaveLength(3);
    const { count } = await db
      .selectFrom('metrics')
      .select(({ fn }) => fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow();
    expect(Number(count)).toBeLessThanOrEqual(RINGS.reduce((sum, { slots }) => sum + slots, 0));
    await live(metrics, 0);
  });

  it('know the present of many, and only the present', async () => {
    const { metrics } = await open();
    const sample = { n: 1 };
    await metrics.record([
      { subject: 'old', at: START - 60_000, sample },
      { subject: 'new', at: START - 5_000, sample },
      { subject: 'new', at: START, sample: { n: 2 } },
    ]);
    expect([...(await metrics.latest<{ n: number }>(['old', 'new', 'none']))]).toEqual([
      ['new', { at: START, sample: { n: 2 } }],
    ]);
  });

  it('of what is gone are forgotten after an hour', async () => {
    const { metrics } = await open();
    await metrics.record([{ subject: 'gone', at: START, sample: {} }]);
    await metrics.prune(new Set());
    expect(await metrics.range('gone', START, START)).toHaveLength(1);
    vi.setSystemTime(START + HOUR + 1);
    await metrics.prune(new Set());
    expect(await metrics.range('gone', START, START)).toEqual([]);
  });
});
