import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { expect, it } from 'vitest';
import { times } from '../support/full.ts';
import { describeOnRuntimes } from '../support/service.ts';
import { Workload } from '../support/workload.ts';

/** Longer than a paused sandbox stays in memory: what comes back after it comes from disk. */
const PAST_HOLD_MS = 17_000;

describeOnRuntimes('pausing again and again', (service, runtime) => {
  it(
    'keeps files, memory and a listening server over many cycles',
    async () => {
      const sandbox = await Sandbox.create({ ...service().connection, timeoutMs: 3_600_000 });
      const workload = await Workload.start(service(), sandbox);
      const cycles = times(5, 50);
      for (let cycle = 1; cycle <= cycles; cycle++) {
        await workload.step(2);
        expect(await sandbox.pause()).toBe(true);
        // Some cycles come back from disk, the others by a thaw.
        if (runtime === 'gvisor' && cycle % 5 === 0) await delay(PAST_HOLD_MS);
        await sandbox.connect({ timeoutMs: 3_600_000 });
        await workload.check();
      }
      await sandbox.kill();
    },
    60_000 + times(5, 50) * 10_000,
  );
});
