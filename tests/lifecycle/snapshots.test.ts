import { Sandbox, type SandboxOpts } from 'e2b';
import { afterEach, expect, it } from 'vitest';
import { describeOnRuntimes } from '../support/service.ts';
import { Workload } from '../support/workload.ts';

const LONG = { timeoutMs: 600_000 };

describeOnRuntimes('snapshots', (service, runtime) => {
  afterEach(() => service().killAll());

  const create = (template?: string, options: SandboxOpts = {}) => {
    const all = { ...service().connection, ...LONG, ...options };
    return template === undefined ? Sandbox.create(all) : Sandbox.create(template, all);
  };
  const remove = (id: string) => Sandbox.deleteSnapshot(id, service().connection);
  const list = (options: object = {}) =>
    Sandbox.listSnapshots({ ...service().connection, ...options }).nextItems() as Promise<{ snapshotId: string }[]>;

  it('hold files and memory of one moment; the sandbox goes on, and they outlive it', async () => {
    const sandbox = await create();
    const workload = await Workload.start(service(), sandbox);
    await workload.step(2);
    const { snapshotId, names } = await sandbox.createSnapshot();
    expect(snapshotId).toMatch(/^[a-z0-9]{20}:default$/);
    expect(names).toEqual([]);
    const atSnapshot = workload.copiedTo('');
    await workload.step(2);
    await workload.check();
    await sandbox.kill();
    const copies = await Promise.all([
      create(snapshotId, { envs: { WHO: 'copy' }, metadata: { a: 'b' } }),
      create(snapshotId),
    ]);
    for (const copy of copies) {
      if (runtime === 'gvisor') {
        const own = atSnapshot.copiedTo(copy.sandboxId);
        await own.check();
        await own.step();
        await own.check();
      } else expect(await copy.files.read('/home/user/load/log')).toMatch(/^round 1 .*\nround 2 .*\n$/);
    }
    expect((await copies[0]?.commands.run('echo $WHO'))?.stdout).toBe('copy\n');
    expect((await copies[0]?.getInfo())?.metadata).toEqual({ a: 'b' });
    await expect(remove(snapshotId)).rejects.toThrow(/^400: .*2 running or paused sandboxes were made from it/);
    await copies[0]?.kill();
    await copies[1]?.pause();
    await expect(remove(snapshotId)).rejects.toThrow(/^400: .*1 running or paused sandboxes/);
    await copies[1]?.kill();
    expect(await remove(snapshotId)).toBe(true);
    expect(await remove(snapshotId)).toBe(false);
    await expect(create(snapshotId)).rejects.toThrow(/^404: template '[a-z0-9]{20}' not found$/);
  });

  it('have names and tags; the same name again means the newest', async () => {
    const sandbox = await create();
    await sandbox.files.write('/home/user/note', '1');
    const first = await sandbox.createSnapshot({ name: 'kept' });
    expect(first).toEqual({ snapshotId: 'default/kept:default', names: ['default/kept'] });
    await sandbox.files.write('/home/user/note', '2');
    expect((await sandbox.createSnapshot({ name: 'kept:v2' })).snapshotId).toBe('default/kept:v2');
    await sandbox.files.write('/home/user/note', '3');
    expect((await sandbox.createSnapshot({ name: 'default/kept' })).snapshotId).toBe('default/kept:default');
    const note = async (reference: string) => {
      const copy = await create(reference);
      const text = await copy.files.read('/home/user/note');
      await copy.kill();
      return text;
    };
    expect(await note('kept')).toBe('3');
    expect(await note('default/kept:v2')).toBe('2');
    await expect(sandbox.createSnapshot({ name: 'other-team/kept' })).rejects.toThrow(/^400: /);
    await expect(sandbox.createSnapshot({ name: 'not a name' })).rejects.toThrow(/^400: /);

    expect((await list()).map(({ snapshotId }) => snapshotId)).toEqual(['default/kept:default', 'default/kept:v2']);
    expect((await list({ name: 'kept:v2' })).map(({ snapshotId }) => snapshotId)).toEqual(['default/kept:v2']);
    expect(await list({ name: 'nothing' })).toEqual([]);
    expect(await list({ sandboxId: sandbox.sandboxId })).toHaveLength(2);
    expect(await list({ sandboxId: 'i00000000000000000000' })).toEqual([]);
    const pages = Sandbox.listSnapshots({ ...service().connection, limit: 1 });
    const paged: string[] = [];
    while (pages.hasNext) paged.push(...(await pages.nextItems()).map(({ snapshotId }) => snapshotId));
    expect(paged).toEqual(['default/kept:default', 'default/kept:v2']);

    // They are no templates to look at.
    const templates = (await (await service().fetch('/templates')).json()) as { names: string[] }[];
    expect(templates.flatMap(({ names }) => names)).not.toContain('default/kept');
    expect(await remove('default/kept:v2')).toBe(true);
    expect(await list()).toEqual([]);
  });

  it('of files alone boot', async () => {
    const sandbox = await create();
    await sandbox.files.write('/home/user/note', 'kept');
    await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
    const response = await service().fetch(`/sandboxes/${sandbox.sandboxId}/snapshots`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ memory: false }),
    });
    expect(response.status).toBe(201);
    const { snapshotID } = (await response.json()) as { snapshotID: string };
    const copy = await create(snapshotID);
    expect(await copy.files.read('/home/user/note')).toBe('kept');
    expect(await copy.commands.list()).toEqual([]);
    await copy.kill();
    expect(await remove(snapshotID)).toBe(true);
  });

  it('do not disturb a command that streams', async () => {
    const sandbox = await create();
    let output = '';
    const counting = sandbox.commands.run('for i in $(seq 1 60); do echo $i; sleep 0.02; done', {
      onStdout: (text) => {
        output += text;
      },
    });
    await expect.poll(() => output).toContain('5\n');
    const { snapshotId } = await sandbox.createSnapshot();
    const [fork] = await sandbox.fork();
    expect((await counting).exitCode).toBe(0);
    expect(output).toBe(Array.from({ length: 60 }, (_, index) => `${index + 1}\n`).join(''));
    if (fork instanceof Sandbox) await fork.kill();
    expect(await remove(snapshotId)).toBe(true);
  });
});
