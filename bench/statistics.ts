/** What is said of a set of timings. */
export interface Summary {
  samples: number;
  failures: number;
  medianMs: number;
  p95Ms: number;
  p99Ms: number;
}

export function summarize(timesMs: readonly number[], failures = 0): Summary {
  const sorted = [...timesMs].sort((a, b) => a - b);
  return {
    samples: sorted.length,
    failures,
    medianMs: percentile(sorted, 0.5),
    p95Ms: percentile(sorted, 0.95),
    p99Ms: percentile(sorted, 0.99),
  };
}

function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** Runs something and tells how long it took. */
export async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const before = performance.now();
  const value = await work();
  return { ms: performance.now() - before, value };
}

/** Runs something `count` times, one after the other. A failure is counted and not timed. */
export async function repeat(count: number, work: (index: number) => Promise<number>): Promise<Summary> {
  const times: number[] = [];
  let failures = 0;
  for (let index = 0; index < count; index++) {
    try {
      times.push(await work(index));
    } catch {
      failures++;
    }
  }
  return summarize(times, failures);
}
