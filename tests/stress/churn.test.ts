import { readdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { times } from '../support/full.ts';
import { countLeftovers, type Leftovers } from '../support/leftovers.ts';
import { describeOnRuntimes, type TestService } from '../support/service.ts';

const ROUNDS = times(30, 200);
const AT_ONCE = 10;
const PATIENCE_MS = 60_000 + ROUNDS * 6_000;

// Without sandboxes booted ahead, which would come and go while it is counted.
describeOnRuntimes(
  'many short lives',
  (service, runtime) => {
    async function live(rounds: number): Promise<void> {
      const program = path.join(import.meta.dirname, 'lives.ts');
      const { stdout, stderr } = await runCommand(process.execPath, [program, String(rounds), String(AT_ONCE)], {
        env: { PATH: process.env['PATH'], ...service().env },
        timeoutMs: PATIENCE_MS,
      });
      expect(stderr).toBe('');
      expect(stdout.trim()).toBe(String(rounds));
    }

    it(`${ROUNDS} times create, command, kill, ${AT_ONCE} at a time: all succeed and nothing stays`, {
      timeout: PATIENCE_MS,
    }, async () => {
      // What is made once and kept is there before it is counted.
      await live(AT_ONCE);
      const before = await settled(service());
      const startedAt = Date.now();
      await live(ROUNDS);
      const seconds = (Date.now() - startedAt) / 1000;
      console.log(`${runtime}: ${ROUNDS} lives in ${seconds.toFixed(1)} s, ${(ROUNDS / seconds).toFixed(1)} a second`);
      await expect.poll(() => footprint(service()), { timeout: 30_000, interval: 500 }).toEqual(before);
    });
  },
  { env: { SANDBAR_WARM_POOL: '0' } },
);

interface Footprint extends Leftovers {
  openFiles: number;
  /** Child processes of the service. */
  children: number;
}

/** What a service has on the machine and holds itself. */
async function footprint({ stateDir, pid }: TestService): Promise<Footprint> {
  const children = await runCommand('pgrep', ['-c', '-P', String(pid)], { okStatuses: [0, 1] });
  return {
    ...(await countLeftovers(stateDir)),
    openFiles: readdirSync(`/proc/${pid}/fd`).length,
    children: Number(children.stdout),
  };
}

/** The footprint once it has stopped changing. */
async function settled(service: TestService): Promise<Footprint> {
  for (let last = ''; ; ) {
    const now = await footprint(service);
    if (JSON.stringify(now) === last) return now;
    last = JSON.stringify(now);
    await sleep(1500);
  }
}
