import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { asUser, base64, describeRaw, eventOf, type Json, outcomeOf, pidOf } from '../support/raw.ts';

/**
 * The in-sandbox interface as the first specification tables it, row by row with the very fields it names. docs/seed-coverage.md says
 * which test proves which row; the other files of this directory look into the corners.
 */
describeRaw('the table of the in-sandbox interface', (sandbox) => {
  const F = 'filesystem.Filesystem';
  const P = 'process.Process';
  const names = (entries: unknown) => (entries as Json[]).map((entry) => entry['name']);

  it('ListDir: path, depth → entries', async () => {
    await sandbox().write('/home/user/listed/one.txt', '12345');
    await sandbox().write('/home/user/listed/sub/two.txt', '');
    const { entries } = await sandbox().ask(`${F}/ListDir`, { path: '/home/user/listed', depth: 1 });
    expect(names(entries)).toEqual(['one.txt', 'sub']);
    const deep = await sandbox().ask(`${F}/ListDir`, { path: 'listed', depth: 2 });
    expect(names(deep['entries'])).toEqual(['one.txt', 'sub', 'two.txt']);
    expect((await sandbox().ask(`${F}/ListDir`, { path: 'listed', depth: 0 }))['entries']).toEqual(entries);
    expect((await sandbox().ask(`${F}/ListDir`, { path: 'listed' }))['entries']).toEqual(entries);
  });

  it('Entry: name, path, size, mode, permissions, owner, group, modifiedTime, symlinkTarget', async () => {
    await sandbox().write('/home/user/entry/file', '12345');
    await sandbox().run('ln -s file /home/user/entry/link');
    const { entries } = (await sandbox().ask(`${F}/ListDir`, { path: 'entry' })) as { entries: Json[] };
    expect(entries[0]).toEqual({
      name: 'file',
      type: 'FILE_TYPE_FILE',
      path: '/home/user/entry/file',
      size: '5',
      mode: 0o644,
      permissions: '-rw-r--r--',
      owner: 'user',
      group: 'user',
      modifiedTime: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3,9})?Z$/),
    });
    expect(entries[1]).toMatchObject({
      name: 'link',
      type: 'FILE_TYPE_FILE',
      permissions: 'Lrwxrwxrwx',
      symlinkTarget: '/home/user/entry/file',
    });
  });

  it('Remove: path → {}', async () => {
    await sandbox().write('/home/user/removed/file', '');
    expect(await sandbox().call(`${F}/Remove`, { path: '/home/user/removed' })).toMatchObject({
      status: 200,
      body: {},
    });
    expect((await sandbox().call(`${F}/Stat`, { path: '/home/user/removed' })).status).toBe(404);
  });

  it('Move: source, destination → entry', async () => {
    await sandbox().write('/home/user/moved/from', 'x');
    const { entry } = await sandbox().ask(`${F}/Move`, { source: 'moved/from', destination: 'moved/to' });
    expect(entry).toMatchObject({ name: 'to', path: '/home/user/moved/to', size: '1' });
  });

  it('CreateWatcher: path, recursive → watcherId; RemoveWatcher: watcherId → {}', async () => {
    const created = await sandbox().ask(`${F}/CreateWatcher`, { path: '/home/user', recursive: true });
    expect(created).toEqual({ watcherId: expect.any(String) });
    const removed = await sandbox().call(`${F}/RemoveWatcher`, { watcherId: created['watcherId'] });
    expect(removed).toMatchObject({ status: 200, body: {} });
  });

  it('List: {} → processes with config, pid, tag', async () => {
    const process = { cmd: '/bin/sleep', args: ['20'], envs: { A: 'b' }, cwd: '/tmp' };
    const stream = await sandbox().open(`${P}/Start`, { process, tag: 'seed' });
    const pid = pidOf(await stream.next());
    const { processes } = (await sandbox().ask(`${P}/List`, {})) as { processes: Json[] };
    expect(processes).toContainEqual({ config: process, pid, tag: 'seed' });
    stream.leave();
    await sandbox().ask(`${P}/SendSignal`, { process: { pid }, signal: 'SIGNAL_SIGKILL' });
  });

  it('Start: process, pty, tag, stdin → a stream of events; Connect: process → the same', async () => {
    const stream = await sandbox().open(`${P}/Start`, {
      process: {
        cmd: '/bin/bash',
        args: ['-c', 'read -r line; echo "got $line"'],
        envs: { TERM: 'dumb' },
        cwd: '/tmp',
      },
      pty: { size: { cols: 80, rows: 24 } },
      tag: null,
      stdin: null,
    });
    expect(stream.response.headers.get('content-type')).toBe('application/connect+json');
    const pid = pidOf(await stream.next());
    const attached = await sandbox().open(`${P}/Connect`, { process: { pid } });
    expect(pidOf(await attached.next())).toBe(pid);
    await sandbox().ask(`${P}/SendInput`, { process: { pid }, input: { pty: base64('it\r') } });
    for (const one of [stream, attached]) {
      const all = await one.rest();
      expect(outcomeOf(all)).toMatchObject({ pty: expect.stringContaining('got it'), end: { exited: true } });
      expect(all.some((frame) => typeof eventOf(frame)['data']?.['pty'] === 'string')).toBe(true);
    }
  });

  it('SendInput: process, input.pty → {}', async () => {
    const stream = await sandbox().open(`${P}/Start`, {
      process: { cmd: '/bin/cat' },
      pty: { size: { cols: 80, rows: 24 } },
    });
    const pid = pidOf(await stream.next());
    const answer = await sandbox().call(`${P}/SendInput`, { process: { pid }, input: { pty: base64('\u0004') } });
    expect(answer).toMatchObject({ status: 200, body: {} });
    expect(outcomeOf(await stream.rest()).end).toMatchObject({ exited: true });
  });

  it('Start without stdin keeps it open', async () => {
    const stream = await sandbox().open(`${P}/Start`, { process: { cmd: '/bin/cat' } });
    const pid = pidOf(await stream.next());
    await sandbox().ask(`${P}/SendInput`, { process: { pid }, input: { stdin: base64('kept open') } });
    expect(eventOf(await stream.next())['data']).toEqual({ stdout: base64('kept open') });
    await sandbox().ask(`${P}/CloseStdin`, { process: { pid } });
    expect(outcomeOf(await stream.rest()).end).toMatchObject({ exited: true });
  });

  it('GET /files: path, user, signature, expiry → the whole file', async () => {
    await sandbox().write('/home/user/seed file.txt', 'whole content');
    const relative = await sandbox().fetch('/files?path=seed%20file.txt&username=user');
    expect(relative.status).toBe(200);
    expect(await relative.text()).toBe('whole content');
    const token = String(sandbox().created['envdAccessToken']);
    const expiration = Math.floor(Date.now() / 1000) + 60;
    const signed = `seed file.txt:read:user:${token}:${expiration}`;
    const signature = `v1_${createHash('sha256').update(signed).digest('base64').replace(/=+$/, '')}`;
    const query = new URLSearchParams({
      path: 'seed file.txt',
      username: 'user',
      signature,
      signature_expiration: String(expiration),
    });
    const answer = await fetch(`${sandbox().service.url}/files?${query}`, {
      headers: { 'e2b-sandbox-id': sandbox().id, 'e2b-sandbox-port': '49983' },
    });
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe('whole content');
  });

  it('POST /files/compose: source_paths, destination, username → path, name', async () => {
    await sandbox().write('/home/user/part-1', 'one ');
    await sandbox().write('/home/user/part-2', 'two');
    const response = await sandbox().fetch('/files/compose', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ source_paths: ['part-1', 'part-2'], destination: 'composed', username: 'user' }),
    });
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ path: '/home/user/composed', name: 'composed' });
    expect(await (await sandbox().fetch('/files?path=composed')).text()).toBe('one two');
  });

  describe('headers', () => {
    it('Connect-Protocol-Version is required', async () => {
      const response = await sandbox().fetch(`/${P}/List`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{}',
      });
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({ code: 'invalid_argument' });
    });

    it('Connect-Timeout-Ms is optional, in milliseconds', async () => {
      expect((await sandbox().call(`${P}/List`, {}, { 'connect-timeout-ms': '5000' })).status).toBe(200);
      const begun = Date.now();
      const slow = await sandbox().stream(
        `${P}/Start`,
        { process: { cmd: '/bin/sleep', args: ['20'] } },
        { 'connect-timeout-ms': '500' },
      );
      expect(slow.at(-1)?.message).toMatchObject({ error: { code: 'deadline_exceeded' } });
      expect(Date.now() - begun).toBeLessThan(3000);
    });

    it('X-Access-Token opens, Basic chooses the user, the default user applies without it', async () => {
      expect((await sandbox().call(`${P}/List`, {}, { 'x-access-token': 'wrong' })).status).toBe(401);
      const made = await sandbox().ask(`${F}/MakeDir`, { path: 'seed-dir' }, asUser('root'));
      expect(made['entry']).toMatchObject({ path: '/root/seed-dir', owner: 'root' });
      const own = await sandbox().ask(`${F}/MakeDir`, { path: 'seed-dir' });
      expect(own['entry']).toMatchObject({ path: '/home/user/seed-dir', owner: 'user' });
    });
  });
});
