import { readdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { expect, it } from 'vitest';
import { times } from '../support/full.ts';
import { describeOnRuntimes, type TestService } from '../support/service.ts';
import { Workload } from '../support/workload.ts';

const LONG = { timeoutMs: 3_600_000 };
const CRASHES = times(3, 20);
const PATIENCE_MS = 30_000 + CRASHES * 12_000;

// The service is killed as a power cut would end it, at a random instant of each transition; its sandboxes go on. Paused ones are let go
// of at once, so that every resume comes from disk.
describeOnRuntimes(
  'a service that is killed',
  (service, runtime) => {
    /** Begins a call, ends the service within `withinMs`, and starts it again. Resolves to whether the call was answered. */
    async function crashDuring(call: () => Promise<Response>, withinMs: number): Promise<boolean> {
      const answer = call().then(
        (response) => response.ok,
        () => false,
      );
      await delay(Math.random() * withinMs);
      await service().kill9();
      await service().start();
      return answer;
    }

    async function stateOf(id: string): Promise<string | undefined> {
      const response = await service().fetch(`/sandboxes/${id}`);
      if (response.status === 404) return undefined;
      expect(response.status).toBe(200);
      return ((await response.json()) as { state: string }).state;
    }

    it(
      'in the middle of a pause leaves the sandbox running or paused, whole',
      async () => {
        const sandbox = await Sandbox.create({ ...service().connection, ...LONG });
        const workload = await Workload.start(service(), sandbox);
        for (let crash = 0; crash < CRASHES; crash++) {
          await workload.step();
          const done = await crashDuring(() => post(service(), sandbox.sandboxId, 'pause'), 600);
          const state = await stateOf(sandbox.sandboxId);
          expect(done ? ['paused'] : ['running', 'paused']).toContain(state);
          await sandbox.connect(LONG);
          await workload.check();
        }
        await sandbox.kill();
      },
      PATIENCE_MS,
    );

    it(
      'in the middle of a resume leaves the sandbox running or paused, whole',
      async () => {
        const sandbox = await Sandbox.create({ ...service().connection, ...LONG });
        const workload = await Workload.start(service(), sandbox);
        for (let crash = 0; crash < CRASHES; crash++) {
          await workload.step();
          expect(await sandbox.pause()).toBe(true);
          const done = await crashDuring(
            () => post(service(), sandbox.sandboxId, 'connect', { timeout: 3600 }),
            runtime === 'gvisor' ? 600 : 60,
          );
          const state = await stateOf(sandbox.sandboxId);
          expect(done ? ['running'] : ['running', 'paused']).toContain(state);
          await sandbox.connect(LONG);
          await workload.check();
        }
        await sandbox.kill();
      },
      PATIENCE_MS,
    );

    it(
      'in the middle of a fork leaves the original as it was, and copies that are whole or not there',
      async () => {
        const sandbox = await Sandbox.create({ ...service().connection, ...LONG });
        const workload = await Workload.start(service(), sandbox);
        for (let crash = 0; crash < CRASHES; crash++) {
          await workload.step();
          await crashDuring(() => post(service(), sandbox.sandboxId, 'fork', { timeout: 3600, count: 2 }), 1_200);
          await workload.check();
          expect(readdirSync(path.join(service().stateDir, 'snapshots'))).toEqual([]);
          for (const id of await otherSandboxes(service(), sandbox.sandboxId)) {
            if (runtime === 'gvisor') await workload.copiedTo(id).check();
            expect((await service().fetch(`/sandboxes/${id}`, { method: 'DELETE' })).status).toBe(204);
          }
        }
        await sandbox.kill();
      },
      PATIENCE_MS,
    );

    it(
      'in the middle of a kill leaves nothing of the sandbox, or all of it',
      async () => {
        for (let crash = 0; crash < CRASHES; crash++) {
          const sandbox = await Sandbox.create({ ...service().connection, ...LONG });
          const workload = await Workload.start(service(), sandbox);
          if (crash % 2 === 1) await sandbox.pause();
          const { sandboxId } = sandbox;
          await crashDuring(() => service().fetch(`/sandboxes/${sandboxId}`, { method: 'DELETE' }), 150);
          if ((await stateOf(sandboxId)) !== undefined) {
            await sandbox.connect(LONG);
            await workload.check();
            expect(await sandbox.kill()).toBe(true);
          }
          await expect
            .poll(() => readdirSync(path.join(service().stateDir, 'sandboxes')), { timeout: 10_000 })
            .toEqual([]);
          const { logs } = (await (await service().fetch(`/v2/sandboxes/${sandboxId}/logs?limit=1`)).json()) as {
            logs: { message: string; fields: Record<string, string> }[];
          };
          expect(logs[0]).toMatchObject({ message: 'sandbox killed on request', fields: { reason: 'user' } });
        }
      },
      PATIENCE_MS,
    );
  },
  { env: { SANDBAR_PAUSE_HOLD_SECONDS: '0', SANDBAR_WARM_POOL: '0' } },
);

describeOnRuntimes(
  'a service that is killed as it answers a create',
  (service) => {
    it('finds the sandbox again as it was asked for', async () => {
      // One of them is mostly booted ahead: then the answer does not wait for the sandbox.
      for (let crash = 0; crash < CRASHES; crash++) {
        const envs = { COLOUR: `green ${crash}` };
        const sandbox = await Sandbox.create({ ...service().connection, ...LONG, envs });
        await service().kill9();
        await service().start();
        const { stdout } = await sandbox.commands.run('echo $COLOUR; whoami; pwd');
        expect(stdout).toBe(`green ${crash}\nuser\n/home/user\n`);
        await sandbox.kill();
      }
    });
  },
  { env: { SANDBAR_WARM_POOL: '2' } },
);

function post(service: TestService, id: string, verb: string, body: object = {}): Promise<Response> {
  return service.fetch(`/sandboxes/${id}/${verb}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

async function otherSandboxes(service: TestService, original: string): Promise<string[]> {
  const listed = (await (await service.fetch('/v2/sandboxes')).json()) as { sandboxID: string }[];
  return listed.map(({ sandboxID }) => sandboxID).filter((id) => id !== original);
}
