import { messageOf } from '../src/core/errors.ts';

/** How often something was done, and how often in vain. */
export interface Tally {
  samples: number;
  failures: number;
  /** What the first failure said. */
  firstFailure?: string;
}

/** What is said of a set of timings. */
export interface Summary extends Tally {
  medianMs: number;
  p95Ms: number;
  p99Ms: number;
}

/** A figure that is not a set of timings. */
export interface Figure extends Tally {
  value: number;
  unit: string;
}

/** Collects timings, and the failures among them, which are counted and not timed. */
export class Timings {
  readonly #timesMs: number[] = [];
  #failures = 0;
  #firstFailure: string | undefined;

  /** Adds what `work` took, or that it failed. */
  async add(work: () => Promise<number>): Promise<void> {
    try {
      this.#timesMs.push(await work());
    } catch (error) {
      this.#failures++;
      this.#firstFailure ??= messageOf(error);
    }
  }

  get tally(): Tally {
    return {
      samples: this.#timesMs.length,
      failures: this.#failures,
      ...(this.#firstFailure !== undefined && { firstFailure: this.#firstFailure }),
    };
  }

  get summary(): Summary {
    return { ...summarize(this.#timesMs), ...this.tally };
  }
}

export function summarize(timesMs: readonly number[], failures = 0): Summary {
  const sorted = [...timesMs].sort((a, b) => a - b);
  return {
    samples: sorted.length,
    failures,
    medianMs: median(sorted),
    p95Ms: percentile(sorted, 0.95),
    p99Ms: percentile(sorted, 0.99),
  };
}

/** Runs something and tells how long it took. */
export async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const before = performance.now();
  const value = await work();
  return { ms: performance.now() - before, value };
}

/** Runs something `count` times, one after the other. */
export async function repeat(count: number, work: (index: number) => Promise<number>): Promise<Summary> {
  const timings = new Timings();
  for (let index = 0; index < count; index++) await timings.add(() => work(index));
  return timings.summary;
}

/** Moves `megabytes` a number of times; the rate is that of the median time. */
export async function repeatRate(count: number, megabytes: number, work: () => Promise<unknown>): Promise<Figure> {
  const { medianMs, p95Ms: _p95, p99Ms: _p99, ...tally } = await repeat(count, async () => (await timed(work)).ms);
  return { value: (megabytes * 1000) / medianMs, unit: 'MB/s', ...tally };
}

/** Percentiles and median as the ComputeSDK suite has them, but of all samples: it leaves out the outer twentieths. */
function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

function median(sorted: readonly number[]): number {
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return low === undefined || high === undefined ? Number.NaN : (low + high) / 2;
}
