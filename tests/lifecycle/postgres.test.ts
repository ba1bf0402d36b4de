import { Sandbox, Template } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RUNTIMES } from '../support/node.ts';
import { startPostgres, type TestPostgres } from '../support/postgres.ts';
import { startTestService, type TestService } from '../support/service.ts';

/** The whole service on the other store: a real PostgreSQL beside real sandboxes. */
describe.each(RUNTIMES)('on PostgreSQL, %s', (runtime) => {
  let postgres: TestPostgres;
  let service: TestService;

  beforeAll(async () => {
    postgres = await startPostgres();
    service = await startTestService({ runtime, databaseUrl: await postgres.freshDatabase() });
  });
  afterAll(async () => {
    await service?.dispose();
    await postgres?.stop();
  });

  const create = (options: object = {}) =>
    Sandbox.create('base', { ...service.connection, timeoutMs: 600_000, ...options });
  const listed = async (query: object = {}) => {
    const paginator = Sandbox.list({ ...service.connection, ...query });
    return (await paginator.nextItems()).map(({ sandboxId }) => sandboxId);
  };

  it('sandboxes run, are found by what they are called, pause, resume and end', async () => {
    const sandbox = await create({ metadata: { kind: 'kept' } });
    const other = await create({ metadata: { kind: 'other' } });
    expect((await sandbox.commands.run('python3 -c "print(6*7)"')).stdout).toBe('42\n');
    await sandbox.files.write('/home/user/note', 'kept');
    expect(await listed({ query: { metadata: { kind: 'kept' } } })).toEqual([sandbox.sandboxId]);
    expect((await listed()).sort()).toEqual([sandbox.sandboxId, other.sandboxId].sort());
    await sandbox.pause();
    expect(await listed({ query: { state: ['paused'] } })).toEqual([sandbox.sandboxId]);
    const again = await Sandbox.connect(sandbox.sandboxId, service.connection);
    expect(await again.files.read('/home/user/note')).toBe('kept');
    await other.kill();
    await again.kill();
    expect(await listed()).toEqual([]);
    expect(await Sandbox.kill(sandbox.sandboxId, service.connection)).toBe(false);
  });

  it('a deadline, a crash of the service and twenty creates at once leave nothing wrong', async () => {
    const brief = await create({ timeoutMs: 1500 });
    const many = await Promise.all(Array.from({ length: 20 }, () => create()));
    await service.kill9();
    await service.start();
    const ids = many.map(({ sandboxId }) => sandboxId).sort();
    await expect.poll(async () => (await listed()).sort(), { timeout: 15_000 }).toEqual(ids);
    expect(await brief.isRunning()).toBe(false);
    await Promise.all(
      many.map(async (sandbox) => {
        expect((await sandbox.commands.run('echo there')).stdout).toBe('there\n');
        await sandbox.kill();
      }),
    );
    expect(await listed()).toEqual([]);
  });

  it('snapshots and templates are made and used', async () => {
    const sandbox = await create();
    await sandbox.files.write('/home/user/note', 'snapped');
    const { snapshotId } = await sandbox.createSnapshot();
    const copy = await Sandbox.create(snapshotId, { ...service.connection, timeoutMs: 600_000 });
    expect(await copy.files.read('/home/user/note')).toBe('snapped');
    await copy.kill();
    await sandbox.kill();
    const template = Template().fromBaseImage().runCmd('echo built > /home/user/built');
    await Template.build(template, 'on-postgres', { ...service.connection, cpuCount: 1, memoryMB: 512 });
    const built = await Sandbox.create('on-postgres', { ...service.connection, timeoutMs: 600_000 });
    expect(await built.files.read('/home/user/built')).toBe('built\n');
    await built.kill();
  });
});
