import { Sandbox } from 'e2b';
import { expect, it } from 'vitest';
import { simulateReboot } from '../support/reboot.ts';
import { describeOnRuntimes } from '../support/service.ts';
import { Workload } from '../support/workload.ts';

const LONG = { timeoutMs: 3_600_000 };

describeOnRuntimes('a machine that reboots', (service, runtime) => {
  it('keeps what is paused and what is a snapshot, says what it lost, and everything can be deleted', async () => {
    const connection = service().connection;
    const [paused, filesOnly, running, doomed] = await Promise.all(
      Array.from({ length: 4 }, () => Sandbox.create({ ...connection, ...LONG })),
    );
    if (!paused || !filesOnly || !running || !doomed) throw new Error('not created');
    const workload = await Workload.start(service(), paused);
    await workload.step(3);
    await filesOnly.files.write('/home/user/note', 'kept');
    await running.files.write('/home/user/note', 'in the snapshot');
    const snapshot = await running.createSnapshot();
    await doomed.pause();
    await filesOnly.pause({ keepMemory: false });
    await paused.pause();

    await service().kill9();
    await simulateReboot(service().stateDir);
    await service().start();

    expect(await statesOf()).toEqual(
      Object.fromEntries([paused, filesOnly, doomed].map((sandbox) => [sandbox.sandboxId, 'paused'])),
    );

    // What ran is gone, and its log and events say why.
    expect((await service().fetch(`/sandboxes/${running.sandboxId}`)).status).toBe(404);
    expect((await lastLine(running.sandboxId))?.fields).toEqual({ reason: 'host' });
    const [last] = await events(running.sandboxId);
    expect(last).toMatchObject({ type: 'sandbox.lifecycle.killed', eventData: { reason: 'host' } });

    // What was paused comes back, with its memory where that was written down.
    const back = await Sandbox.connect(paused.sandboxId, { ...connection, ...LONG });
    if (runtime === 'gvisor') {
      await workload.check();
      await workload.step();
      await workload.check();
    } else {
      expect(await back.files.read('/home/user/load/log')).toMatch(/^round 1 .*\nround 2 .*\nround 3 .*\n$/);
      expect((await lastLine(paused.sandboxId))?.message).toBe(
        'sandbox resumed with its files alone: the memory was not kept: the sandbox booted with its files',
      );
    }
    const files = await Sandbox.connect(filesOnly.sandboxId, { ...connection, ...LONG });
    expect(await files.files.read('/home/user/note')).toBe('kept');
    const copy = await Sandbox.create(snapshot.snapshotId, { ...connection, ...LONG });
    expect(await copy.files.read('/home/user/note')).toBe('in the snapshot');

    for (const sandbox of [back, files, copy, doomed]) expect(await sandbox.kill()).toBe(true);
    expect(await Sandbox.deleteSnapshot(snapshot.snapshotId, connection)).toBe(true);
    expect(await statesOf()).toEqual({});
  });

  async function statesOf(): Promise<Record<string, string>> {
    const listed = (await (await service().fetch('/v2/sandboxes')).json()) as { sandboxID: string; state: string }[];
    return Object.fromEntries(listed.map(({ sandboxID, state }) => [sandboxID, state]));
  }

  async function lastLine(id: string): Promise<{ message: string; fields: object } | undefined> {
    const { logs } = (await (await service().fetch(`/v2/sandboxes/${id}/logs?limit=1`)).json()) as {
      logs: { message: string; fields: object }[];
    };
    return logs[0];
  }

  async function events(id: string): Promise<object[]> {
    return (await (await service().fetch(`/events/sandboxes/${id}`)).json()) as object[];
  }
});
