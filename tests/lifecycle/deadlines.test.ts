import { setTimeout as delay } from 'node:timers/promises';
import { NotFoundError, Sandbox, type SandboxOpts } from 'e2b';
import { afterEach, expect, it } from 'vitest';
import { describeOnRuntimes } from '../support/service.ts';

const HOUR_MS = 3_600_000;

describeOnRuntimes(
  'deadlines',
  (service) => {
    afterEach(() => service().killAll());

    const create = (options: SandboxOpts = {}) => Sandbox.create({ ...service().connection, ...options });
    const lifeOf = async (sandbox: Sandbox) => (await sandbox.getInfo()).endAt.getTime() - Date.now();
    const stateOf = async (sandbox: Sandbox) => {
      const response = await service().fetch(`/sandboxes/${sandbox.sandboxId}`);
      return response.ok ? ((await response.json()) as { state: string }).state : response.status;
    };

    it('end a sandbox at its time, which is said in its log', async () => {
      const sandbox = await create({ timeoutMs: 1500 });
      expect(await stateOf(sandbox)).toBe('running');
      await expect.poll(() => stateOf(sandbox), { timeout: 15_000 }).toBe(404);
      const newest = async () => {
        const answer = await service().fetch(`/v2/sandboxes/${sandbox.sandboxId}/logs`);
        return ((await answer.json()) as { logs: { message: string; fields: object }[] }).logs[0];
      };
      const expected = { message: 'sandbox killed at its deadline', fields: { reason: 'timeout' } };
      await expect.poll(newest, { timeout: 5000 }).toMatchObject(expected);
    });

    it('are moved both ways by setTimeout, only later by connect and refreshes', async () => {
      const sandbox = await create({ timeoutMs: HOUR_MS });
      await sandbox.connect({ timeoutMs: 60_000 });
      expect(await lifeOf(sandbox)).toBeGreaterThan(HOUR_MS - 30_000);
      await sandbox.setTimeout(60_000);
      expect(await lifeOf(sandbox)).toBeLessThan(61_000);
      await post(sandbox, 'refreshes', { duration: 30 });
      expect(await lifeOf(sandbox)).toBeGreaterThan(50_000);
      await post(sandbox, 'refreshes', { duration: 600 });
      expect(await lifeOf(sandbox)).toBeGreaterThan(590_000);
      await sandbox.connect({ timeoutMs: 900_000 });
      expect(await lifeOf(sandbox)).toBeGreaterThan(890_000);
    });

    it('are cut to the longest life of a run, and refused beyond it', async () => {
      const sandbox = await create({ timeoutMs: 60_000 });
      await sandbox.setTimeout(10 * HOUR_MS);
      const { startedAt, endAt } = await sandbox.getInfo();
      expect(endAt.getTime() - startedAt.getTime()).toBe(2 * HOUR_MS);
      await expect(create({ timeoutMs: 3 * HOUR_MS })).rejects.toThrow('Timeout cannot be greater than 2 hours');
      await expect(sandbox.connect({ timeoutMs: 3 * HOUR_MS })).rejects.toThrow(
        'Timeout cannot be greater than 2 hours',
      );
    });

    it('of zero are now', async () => {
      const sandbox = await create({ timeoutMs: HOUR_MS });
      await sandbox.setTimeout(0);
      await expect.poll(() => stateOf(sandbox), { timeout: 3000 }).toBe(404);
    });

    it('stand still while a sandbox is paused, and begin anew when it resumes', async () => {
      const sandbox = await create({ timeoutMs: 2000 });
      await sandbox.pause();
      await delay(2500);
      expect(await stateOf(sandbox)).toBe('paused');
      await expect(sandbox.setTimeout(60_000)).rejects.toThrow(NotFoundError);
      expect((await post(sandbox, 'refreshes', {})).status).toBe(404);
      await sandbox.connect({ timeoutMs: 60_000 });
      expect(await lifeOf(sandbox)).toBeGreaterThan(55_000);
    });

    it('pause a sandbox that was made so, every time, also after it was connected to', async () => {
      const sandbox = await create({ timeoutMs: 1500, lifecycle: { onTimeout: 'pause' } });
      await sandbox.files.write('/home/user/note', '1');
      const sleeper = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
      void sleeper.wait().catch(() => undefined);
      for (let time = 1; time <= 3; time++) {
        await expect.poll(() => stateOf(sandbox), { timeout: 6000 }).toBe('paused');
        await sandbox.connect({ timeoutMs: 1500 });
        expect((await sandbox.commands.list()).map(({ pid }) => pid)).toEqual([sleeper.pid]);
        expect(await sandbox.files.read('/home/user/note')).toBe(String(time));
        await sandbox.files.write('/home/user/note', String(time + 1));
      }
    });

    it('keep only the files where that was asked for', async () => {
      const sandbox = await create({
        timeoutMs: 1500,
        lifecycle: { onTimeout: { action: 'pause', keepMemory: false } },
      });
      await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
      await expect.poll(() => stateOf(sandbox), { timeout: 6000 }).toBe('paused');
      await sandbox.connect({ timeoutMs: 60_000 });
      expect(await sandbox.commands.list()).toEqual([]);
    });

    it('hold after a restart of the service, also those that passed meanwhile', async () => {
      const [soon, later, kept] = await Promise.all([
        create({ timeoutMs: 2000 }),
        create({ timeoutMs: 2000, lifecycle: { onTimeout: 'pause' } }),
        create({ timeoutMs: 60_000 }),
      ]);
      await service().stop();
      await delay(2500);
      await service().start();
      if (!soon || !later || !kept) throw new Error('not created');
      await expect.poll(() => stateOf(soon), { timeout: 5000 }).toBe(404);
      await expect.poll(() => stateOf(later), { timeout: 5000 }).toBe('paused');
      expect(await stateOf(kept)).toBe('running');
    });

    function post(sandbox: Sandbox, verb: string, body: object): Promise<Response> {
      return service().fetch(`/sandboxes/${sandbox.sandboxId}/${verb}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    }
  },
  { env: { SANDBAR_MAX_TIMEOUT_HOURS: '2' } },
);
