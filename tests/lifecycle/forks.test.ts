import { Sandbox } from 'e2b';
import { expect, it } from 'vitest';
import { times } from '../support/full.ts';
import { countLeftovers, settledLeftovers } from '../support/leftovers.ts';
import { describeOnRuntimes } from '../support/service.ts';
import { Workload } from '../support/workload.ts';

const COPIES = times(10, 100);
const LONG = { timeoutMs: 3_600_000 };

interface Result {
  sandbox?: { sandboxID: string; envdAccessToken: string };
  error?: object;
}

const ADDRESS = 'hostname -I';

describeOnRuntimes(
  'many copies in one call',
  (service, runtime) => {
    it(
      'all answer, share nothing that must be their own, and leave nothing',
      async () => {
        const original = await Sandbox.create({
          ...service().connection,
          ...LONG,
          envs: { COLOUR: 'green' },
          metadata: { kind: 'forked' },
        });
        const workload = await Workload.start(service(), original);
        await workload.step(2);
        const before = await settledLeftovers(service().stateDir);
        const response = await service().fetch(`/sandboxes/${original.sandboxId}/fork`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ count: COPIES, timeout: 3600 }),
        });
        expect(response.status).toBe(201);
        const results = (await response.json()) as Result[];
        expect(results.filter(({ error }) => error !== undefined)).toEqual([]);
        expect(results).toHaveLength(COPIES);
        const handles = results.flatMap(({ sandbox }) => sandbox ?? []);
        const ids = handles.map(({ sandboxID }) => sandboxID);
        expect(new Set([...ids, original.sandboxId]).size).toBe(COPIES + 1);
        const tokens = handles.map(({ envdAccessToken }) => envdAccessToken);
        expect(new Set(tokens).size).toBe(COPIES);

        const addresses = new Set([(await original.commands.run(ADDRESS)).stdout.trim()]);
        await eachOf(ids, async (id) => {
          const copy = await Sandbox.connect(id, { ...service().connection, ...LONG });
          const { stdout } = await copy.commands.run(
            `${ADDRESS}; echo $E2B_SANDBOX_ID $COLOUR; date +%s; cat /home/user/load/log | wc -l`,
          );
          const [address = '', identity, seconds, lines] = stdout.trim().split('\n');
          addresses.add(address.trim());
          expect(identity).toBe(`${id} green`);
          expect(Math.abs(Number(seconds) - Date.now() / 1000)).toBeLessThan(5);
          expect(Number(lines)).toBe(2);
          if (runtime === 'gvisor') {
            const own = workload.copiedTo(id);
            await own.answers();
            // Each tenth is looked at from end to end: a hundred would take minutes.
            if (ids.indexOf(id) % 10 === 0) await own.check();
            await own.step();
          }
          expect((await copy.getInfo()).metadata).toEqual({ kind: 'forked' });
        });
        expect(addresses.size).toBe(COPIES + 1);
        await workload.check();

        await eachOf(ids, async (id) => {
          expect((await service().fetch(`/sandboxes/${id}`, { method: 'DELETE' })).status).toBe(204);
        });
        await expect.poll(() => countLeftovers(service().stateDir), { timeout: 10_000 }).toEqual(before);
        await original.kill();
      },
      60_000 + COPIES * 5_000,
    );
  },
  { env: { SANDBAR_WARM_POOL: '0' } },
);

/** Works through a list, four at a time. */
async function eachOf<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item);
    }),
  );
}
