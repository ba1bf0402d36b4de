import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { describeRaw, errorOf, type Json, RawSandbox } from '../support/raw.ts';

const F = 'filesystem.Filesystem';

describeRaw('watchers on the wire', (sandbox) => {
  let count = 0;
  async function directory(): Promise<string> {
    const path = `/home/user/watched-${++count}`;
    await sandbox().ask(`${F}/MakeDir`, { path });
    return path;
  }
  const create = async (message: Json) => (await sandbox().ask(`${F}/CreateWatcher`, message))['watcherId'] as string;
  const events = async (watcherId: string) =>
    ((await sandbox().ask(`${F}/GetWatcherEvents`, { watcherId }))['events'] ?? []) as Json[];
  const named = (list: Json[]) => list.map((event) => `${event['type']} ${event['name']}`);

  it('collect events until they are asked for, and give each once', async () => {
    const path = await directory();
    const id = await create({ path });
    expect(id).toMatch(/./);
    expect(await events(id)).toEqual([]);
    await sandbox().run(`cd ${path} && echo x > file && rm file`);
    await expect
      .poll(async () => named(await events(id)), { timeout: 5000 })
      .toEqual(expect.arrayContaining(['EVENT_TYPE_CREATE file', 'EVENT_TYPE_WRITE file', 'EVENT_TYPE_REMOVE file']));
    expect(await events(id)).toEqual([]);
    expect(await sandbox().call(`${F}/RemoveWatcher`, { watcherId: id })).toMatchObject({ status: 200, body: {} });
  });

  it('are forgotten once they are removed', async () => {
    const id = await create({ path: await directory() });
    await sandbox().ask(`${F}/RemoveWatcher`, { watcherId: id });
    for (const rpc of ['GetWatcherEvents', 'RemoveWatcher'])
      for (const watcherId of [id, 'nonsense', ''])
        expect(await sandbox().call(`${F}/${rpc}`, { watcherId })).toMatchObject({
          status: 404,
          body: { code: 'not_found', message: `watcher with id ${watcherId} not found` },
        });
  });

  it('of one sandbox mean nothing in another', async () => {
    const id = await create({ path: await directory() });
    const other = await RawSandbox.create(sandbox().service);
    await other.ask(`${F}/CreateWatcher`, { path: '/tmp' });
    expect(await other.call(`${F}/GetWatcherEvents`, { watcherId: id })).toMatchObject({ status: 404 });
  });

  it('look below and show entries when told to', async () => {
    const path = await directory();
    const id = await create({ path, recursive: true, includeEntry: true });
    await sandbox().ask(`${F}/MakeDir`, { path: `${path}/sub` });
    await sleep(200);
    await sandbox().write(`${path}/sub/file`, 'x');
    const seen: Json[] = [];
    const all = async () => {
      seen.push(...(await events(id)));
      return named(seen);
    };
    await expect
      .poll(all, { timeout: 5000 })
      .toEqual(expect.arrayContaining(['EVENT_TYPE_CREATE sub', 'EVENT_TYPE_CREATE sub/file']));
    const created = seen.find((event) => event['name'] === 'sub/file' && event['type'] === 'EVENT_TYPE_CREATE');
    expect(created?.['entry']).toMatchObject({ path: `${path}/sub/file`, type: 'FILE_TYPE_FILE' });
  });

  it('fan one change of the kernel out in a fixed order', async () => {
    const path = await directory();
    const id = await create({ path });
    await sandbox().run(`cd ${path} && touch a && mv a b && chmod 600 b`);
    await sleep(400);
    const seen = named(await events(id));
    expect(seen.indexOf('EVENT_TYPE_RENAME a')).toBeGreaterThan(seen.indexOf('EVENT_TYPE_CREATE a'));
    expect(seen.indexOf('EVENT_TYPE_CREATE b')).toBeGreaterThan(seen.indexOf('EVENT_TYPE_RENAME a'));
    expect(seen.indexOf('EVENT_TYPE_CHMOD b')).toBeGreaterThan(seen.indexOf('EVENT_TYPE_CREATE b'));
  });

  it('fail for what is missing or not a directory', async () => {
    const path = await directory();
    await sandbox().write(`${path}/file`, '');
    expect(await sandbox().call(`${F}/CreateWatcher`, { path: `${path}/no` })).toMatchObject({
      status: 404,
      body: { code: 'not_found', message: expect.stringContaining(`path ${path}/no not found`) },
    });
    expect(await sandbox().call(`${F}/CreateWatcher`, { path: `${path}/file` })).toMatchObject({
      status: 400,
      body: { code: 'invalid_argument', message: expect.stringContaining(`path ${path}/file not a directory`) },
    });
    expect(errorOf(await sandbox().stream(`${F}/WatchDir`, { path: `${path}/no` }))).toMatchObject({
      code: 'not_found',
    });
  });

  it('streams begin with a start and end at the deadline', async () => {
    const path = await directory();
    const stream = await sandbox().open(`${F}/WatchDir`, { path }, { 'connect-timeout-ms': '800' });
    expect((await stream.next()).message).toEqual({ start: {} });
    await sandbox().write(`${path}/file`, 'x');
    expect((await stream.next()).message).toEqual({ filesystem: { name: 'file', type: 'EVENT_TYPE_CREATE' } });
    expect(errorOf(await stream.rest())).toMatchObject({ code: 'deadline_exceeded' });
  });

  it('hundreds of them are no burden', async () => {
    const path = await directory();
    const ids = await Promise.all(Array.from({ length: 200 }, () => create({ path })));
    await sandbox().write(`${path}/file`, 'x');
    await expect.poll(async () => named(await events(ids.at(-1) as string)), { timeout: 5000 }).not.toEqual([]);
    await Promise.all(ids.map((watcherId) => sandbox().ask(`${F}/RemoveWatcher`, { watcherId })));
    expect(await sandbox().goesOn()).toBe(true);
  });
});
