import { readdirSync } from 'node:fs';
import { Sandbox } from 'e2b';
import { expect, it } from 'vitest';
import { times } from '../support/full.ts';
import { countLeftovers, type Leftovers } from '../support/leftovers.ts';
import { describeOnRuntimes, type TestService } from '../support/service.ts';

const ROUNDS = times(40, 200);
const AT_ONCE = 10;

/** What a service has on the machine, and the files that it holds open. */
async function footprint(service: TestService): Promise<Leftovers & { openFiles: number }> {
  return { ...(await countLeftovers(service.stateDir)), openFiles: openFilesOf(service.pid) };
}

/** Open files of the service but for connections: those of clients are kept alive for a while. */
function openFilesOf(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

async function oneLife(service: TestService, index: number): Promise<void> {
  const sandbox = await Sandbox.create({ ...service.connection, timeoutMs: 300_000 });
  const result = await sandbox.commands.run(`echo life ${index}`);
  expect(result.stdout).toBe(`life ${index}\n`);
  expect(await sandbox.kill()).toBe(true);
}

// Without sandboxes booted ahead, which would come and go while it is counted.
describeOnRuntimes(
  'many short lives',
  (service, runtime) => {
    it(
      `${ROUNDS} times create, command, kill, ${AT_ONCE} at a time: all succeed and nothing stays`,
      { timeout: 60_000 + ROUNDS * 6_000 },
      async () => {
        // What is made once and kept (an empty disk to copy, a compiled view) is there before it is counted.
        await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => oneLife(service(), index)));
        await closeIdleConnections();
        await expect.poll(async () => (await countLeftovers(service().stateDir)).directories).toBe(0);
        const before = await settled(service());

        let begun = 0;
        const startedAt = Date.now();
        const worker = async () => {
          while (begun < ROUNDS) await oneLife(service(), begun++);
        };
        await Promise.all(Array.from({ length: AT_ONCE }, worker));
        const seconds = (Date.now() - startedAt) / 1000;
        console.log(`${runtime}: ${ROUNDS} lives in ${seconds.toFixed(1)} s, ${(ROUNDS / seconds).toFixed(1)} a second`);

        await closeIdleConnections();
        await expect.poll(() => footprint(service()), { timeout: 15_000, interval: 500 }).toEqual(before);
      },
    );
  },
  { env: { SANDBAR_WARM_POOL: '0' } },
);

/** Lets go of the connections that the SDK keeps for its next request. */
async function closeIdleConnections(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 500));
}

/** The footprint once it has stopped changing. */
async function settled(service: TestService): Promise<Leftovers & { openFiles: number }> {
  let last = await footprint(service);
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const now = await footprint(service);
    if (JSON.stringify(now) === JSON.stringify(last)) return now;
    last = now;
  }
}
