import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import type { TestService } from '../tests/support/service.ts';
import type { Row } from './report.ts';

/** Idle memory of a sandbox: the proportional share of every process of the sandboxes, divided by their number. */
export async function measureMemory(service: TestService, where: string, counts: readonly number[]): Promise<Row[]> {
  const rows: Row[] = [];
  const sandboxes: Sandbox[] = [];
  try {
    for (const count of counts) {
      while (sandboxes.length < count) {
        const lacking = Math.min(4, count - sandboxes.length);
        sandboxes.push(
          ...(await Promise.all(
            Array.from({ length: lacking }, () => Sandbox.create({ ...service.connection, timeoutMs: 3_600_000 })),
          )),
        );
      }
      await delay(3_000);
      const total = sandboxProcesses(service.stateDir).reduce((sum, pid) => sum + pssKb(pid), 0);
      rows.push({
        what: `idle memory, ${count} sandboxes`,
        where,
        value: `${(total / 1024 / count).toFixed(1)} MB each`,
      });
    }
    rows.push({
      what: `the service itself at ${sandboxes.length}`,
      where,
      value: `${Math.round(pssKb(service.pid) / 1024)} MB`,
    });
  } finally {
    for (const sandbox of sandboxes) await sandbox.kill().catch(() => undefined);
  }
  return rows;
}

/** Processes in the control groups of a service's sandboxes. */
function sandboxProcesses(stateDir: string): number[] {
  const ids = new Set(readdirSync(`${stateDir}/sandboxes`));
  const pids: number[] = [];
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      const groups = readFileSync(`/proc/${name}/cgroup`, 'utf8');
      if ([...ids].some((id) => groups.includes(id))) pids.push(Number(name));
    } catch {
      // Gone in the meantime.
    }
  }
  return pids;
}

function pssKb(pid: number): number {
  try {
    return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1] ?? 0);
  } catch {
    return 0;
  }
}
