import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import type { TestService } from '../tests/support/service.ts';
import { WHAT } from './names.ts';
import { cpuSeconds, pssMb, sandboxProcesses, serviceProcesses } from './processes.ts';
import type { Row } from './report.ts';
import { Timings, timed } from './statistics.ts';

const SETTLE_MS = 3_000;
const AT_A_TIME = 4;
/** More tries than this in vain, and the count is not reached. */
const MOST_FAILURES = 10;

export interface MemorySize {
  counts: readonly number[];
  /** How long the service's CPU time is watched, seconds. */
  watchSeconds: number;
}

/** Idle memory of a sandbox: the proportional share of every process of the sandboxes, divided by their number; and the service's own needs. */
export async function measureMemory(service: TestService, where: string, size: MemorySize): Promise<Row[]> {
  const rows: Row[] = [];
  const sandboxes: Sandbox[] = [];
  for (const count of size.counts) {
    const creates = new Timings();
    while (sandboxes.length < count && creates.tally.failures < MOST_FAILURES) {
      const create = () =>
        creates.add(async () => {
          const { ms, value } = await timed(() => Sandbox.create({ ...service.connection, timeoutMs: 3_600_000 }));
          sandboxes.push(value);
          return ms;
        });
      await Promise.all(Array.from({ length: Math.min(AT_A_TIME, count - sandboxes.length) }, create));
    }
    await delay(SETTLE_MS);
    const { failures, firstFailure } = creates.tally;
    const tally = { samples: sandboxes.length, failures, ...(firstFailure !== undefined && { firstFailure }) };
    const processes = sandboxProcesses(service.stateDir, service.pid);
    rows.push({
      what: WHAT.idle(count),
      where,
      figure: { value: pssMb(processes) / sandboxes.length, unit: 'MB each', ...tally },
      note: `${processes.length} processes`,
    });
    const own = serviceProcesses(service.stateDir, service.pid);
    const before = cpuSeconds(own);
    const { ms } = await timed(() => delay(size.watchSeconds * 1000));
    const share = (cpuSeconds(own) - before) / (ms / 1000);
    const one = { samples: 1, failures: 0 };
    rows.push(
      { what: WHAT.service(count), where, figure: { value: pssMb(own), unit: 'MB', ...one } },
      {
        what: `the service's own CPU, ${count} sandboxes`,
        where,
        figure: { value: share * 100, unit: '% of a core', ...one },
        note: `idle, over ${size.watchSeconds} s`,
      },
    );
  }
  return rows;
}
