import type { MetricStore } from '../db/metric-store.ts';
import type { MetricRow } from '../db/schema.ts';
import type { Timed } from './contract.ts';

/** A ring of samples: one every `stepSeconds`, so many of them. */
interface Ring {
  stepSeconds: number;
  slots: number;
}

/** An hour at 5 s, six hours at 30 s, two days at 5 min. Fine ones first. */
export const RINGS: readonly [Ring, ...Ring[]] = [
  { stepSeconds: 5, slots: 720 },
  { stepSeconds: 30, slots: 720 },
  { stepSeconds: 300, slots: 576 },
];

const HOUR_MS = 3_600_000;
const ROWS_PER_INSERT = 150;
/** A sample older than this is not the present any more. */
const FRESH_MS = 30_000;
const [FINEST] = RINGS;
const LONGEST_MS = Math.max(...RINGS.map(({ stepSeconds, slots }) => stepSeconds * slots)) * 1000;

/** Samples over time of anything that has an id. */
export class Metrics {
  readonly #store: MetricStore;
  /** The slot of each coarse ring that a subject wrote last. */
  readonly #written = new Map<string, number[]>();

  constructor(store: MetricStore) {
    this.#store = store;
  }

  async record(samples: readonly ({ subject: string } & Timed<object>)[]): Promise<void> {
    const rows = samples.flatMap(({ subject, at, sample }) => this.#rowsOf(subject, at, JSON.stringify(sample)));
    for (let start = 0; start < rows.length; start += ROWS_PER_INSERT)
      await this.#store.put(rows.slice(start, start + ROWS_PER_INSERT));
  }

  /** Samples between two times, as fine as so long a time and so old a beginning allow. Oldest first. */
  async range<Sample>(subject: string, from: number, to: number): Promise<Timed<Sample>[]> {
    const { stepSeconds, slots } = ringFor(from, to, Date.now());
    // What a ring has passed over and not yet overwritten is not part of it any more.
    const oldest = Math.max(from, Date.now() - stepSeconds * slots * 1000);
    return (await this.#store.range(subject, stepSeconds, oldest, to)).map(decoded<Sample>);
  }

  /** The present sample of each subject that has one. */
  async latest<Sample>(subjects: readonly string[]): Promise<Map<string, Timed<Sample>>> {
    const rows = await this.#store.latest(subjects, FINEST.stepSeconds, Date.now() - FRESH_MS);
    return new Map(rows.map((row) => [row.subject, decoded<Sample>(row)]));
  }

  /** Drops what is too old to be asked for, and what is left of subjects that have been gone for an hour. */
  async prune(alive: ReadonlySet<string>): Promise<void> {
    for (const subject of this.#written.keys()) if (!alive.has(subject)) this.#written.delete(subject);
    await this.#store.prune(Date.now() - LONGEST_MS, Date.now() - HOUR_MS);
  }

  #rowsOf(subject: string, at: number, sample: string): MetricRow[] {
    const before = this.#written.get(subject) ?? [];
    const steps = RINGS.map(({ stepSeconds }) => Math.floor(at / (stepSeconds * 1000)));
    this.#written.set(subject, steps);
    return RINGS.flatMap(({ stepSeconds, slots }, index) => {
      const step = steps[index] ?? 0;
      if (index > 0 && before[index] === step) return [];
      return { subject, stepSeconds, slot: step % slots, createdAt: at, sample };
    });
  }
}

function ringFor(from: number, to: number, now: number): Ring {
  const byLength = to - from < HOUR_MS ? 0 : to - from < 6 * HOUR_MS ? 1 : 2;
  const reaching = RINGS.findIndex(({ stepSeconds, slots }) => now - from <= stepSeconds * slots * 1000);
  const index = Math.max(byLength, reaching === -1 ? RINGS.length - 1 : reaching);
  return RINGS[index] ?? FINEST;
}

function decoded<Sample>(row: MetricRow): Timed<Sample> {
  return { at: row.createdAt, sample: JSON.parse(row.sample) };
}
