import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, truncateSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { NotFoundError, Sandbox, type SandboxOpts } from 'e2b';
import { afterEach, expect, it } from 'vitest';
import { describeOnRuntimes } from '../support/service.ts';

const LONG = { timeoutMs: 600_000 };

describeOnRuntimes('pause and resume', (service, runtime) => {
  afterEach(() => service().killAll());

  const create = (options: SandboxOpts = {}) => Sandbox.create({ ...service().connection, ...LONG, ...options });
  const connect = (id: string, options: object = {}) =>
    Sandbox.connect(id, { ...service().connection, ...LONG, ...options });

  it('keeps processes and terminals, which are listed and taken up again', async () => {
    const sandbox = await create();
    const seen: string[] = [];
    const counter = await sandbox.commands.run('n=0; while :; do n=$((n+1)); echo $n; sleep 0.1; done', {
      background: true,
      timeoutMs: 0,
      onStdout: (text) => {
        seen.push(text);
      },
    });
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: () => undefined });
    await sandbox.pty.sendInput(terminal.pid, Buffer.from('COLOUR=blue; cd /tmp\n'));
    await expect.poll(() => seen.length).toBeGreaterThan(2);
    // Clients let go before a pause, or are cut off by it.
    void counter.wait().catch(() => undefined);
    void terminal.wait().catch(() => undefined);
    expect(await sandbox.pause()).toBe(true);
    const before = Number(seen.join('').trim().split('\n').at(-1));

    const again = await connect(sandbox.sandboxId);
    const listed = (await again.commands.list()).map(({ pid }) => pid);
    expect(listed).toEqual(expect.arrayContaining([counter.pid, terminal.pid]));
    const more: string[] = [];
    const attached = await again.commands.connect(counter.pid, {
      onStdout: (text) => {
        more.push(text);
      },
    });
    await expect.poll(() => Number(more.join('').trim().split('\n').at(-1)), { timeout: 5000 }).toBeGreaterThan(before);
    expect(await attached.kill()).toBe(true);
    let screen = '';
    const shell = await again.pty.connect(terminal.pid, {
      onData: (data) => {
        screen += Buffer.from(data).toString();
      },
    });
    await again.pty.sendInput(terminal.pid, Buffer.from('echo [$COLOUR in $PWD]\n'));
    await expect.poll(() => screen, { timeout: 5000 }).toContain('[blue in /tmp]');
    await shell.kill();
  });

  it('without memory keeps the files and boots', async () => {
    const sandbox = await create({ envs: { COLOUR: 'green' } });
    await sandbox.files.write('/home/user/note', 'kept');
    await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
    expect(await sandbox.pause({ keepMemory: false })).toBe(true);
    expect(await detail(sandbox)).toMatchObject({ state: 'paused', pauseMode: 'filesystem' });
    const again = await connect(sandbox.sandboxId);
    expect(await again.commands.list()).toEqual([]);
    expect(await again.files.read('/home/user/note')).toBe('kept');
    expect((await again.commands.run('echo $COLOUR')).stdout).toBe('green\n');
    expect(await lastLine(sandbox)).toBe('sandbox resumed with its files alone');
  });

  it('can be told to leave kept memory alone and boot', async () => {
    const sandbox = await create();
    await sandbox.files.write('/home/user/note', 'kept');
    await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
    await sandbox.pause();
    expect(await detail(sandbox)).toMatchObject({ state: 'paused', pauseMode: 'full' });
    const again = await connect(sandbox.sandboxId, { onResume: 'reboot' });
    expect(await again.commands.list()).toEqual([]);
    expect(await again.files.read('/home/user/note')).toBe('kept');
    // It has no effect on one that runs.
    await again.commands.run('sleep 1000', { background: true, timeoutMs: 0 });
    const running = await connect(sandbox.sandboxId, { onResume: 'reboot' });
    expect(await running.commands.list()).toHaveLength(1);
  });

  it('a memory image that is broken costs the memory, not the sandbox, and is said', async () => {
    if (runtime !== 'gvisor') return;
    const sandbox = await create();
    await sandbox.files.write('/home/user/note', 'kept');
    await sandbox.pause();
    await service().kill9();
    const directory = path.join(service().stateDir, 'sandboxes', sandbox.sandboxId);
    const { pid } = JSON.parse(readFileSync(path.join(directory, 'record.json'), 'utf8')) as { pid: number };
    if (pid !== 0) process.kill(pid, 'SIGKILL');
    truncateSync(path.join(directory, 'image/memory/checkpoint.img'), 1000);
    await service().start();
    const again = await connect(sandbox.sandboxId);
    expect(await again.files.read('/home/user/note')).toBe('kept');
    expect(await lastLine(sandbox)).toMatch(
      /^sandbox resumed with its files alone: the memory could not be restored: the sandbox booted with its files/,
    );
  });

  it('boots with all its files also while another mount namespace keeps its disk in use', async () => {
    const sandbox = await create();
    await sandbox.files.write('/home/user/note', 'kept');
    // As a container does that is being made at that moment: it begins with every mount of the machine.
    const other = spawn('unshare', ['--mount', '--propagation', 'private', 'sleep', '60']);
    try {
      await delay(300);
      await sandbox.pause({ keepMemory: false });
      const again = await connect(sandbox.sandboxId);
      expect(await again.files.read('/home/user/note')).toBe('kept');
      await again.files.write('/home/user/later', 'kept too');
      other.kill();
      await once(other, 'exit');
      await again.pause({ keepMemory: false });
      const last = await connect(sandbox.sandboxId);
      expect(await last.files.read('/home/user/note')).toBe('kept');
      expect(await last.files.read('/home/user/later')).toBe('kept too');
    } finally {
      other.kill();
    }
  });

  it('is asked for many times at once and done once; a connect at the same time waits and resumes', async () => {
    const sandbox = await create();
    const pause = { path: `/sandboxes/${sandbox.sandboxId}/pause` };
    const resume = { path: `/sandboxes/${sandbox.sandboxId}/connect`, body: { timeout: 600 } };
    expect(await service().postTogether([pause, pause, pause, pause, pause])).toEqual([204, 204, 204, 204, 204]);
    expect(await sandbox.pause()).toBe(false);
    await sandbox.connect(LONG);
    expect(await service().postTogether([pause, resume])).toEqual([204, 201]);
    expect((await sandbox.getInfo()).state).toBe('running');
    expect((await sandbox.commands.run('echo alive')).stdout).toBe('alive\n');
  });

  it('keeps what was set at creation', async () => {
    const sandbox = await create({
      metadata: { user: 'x' },
      envs: { A: 'b' },
      lifecycle: { onTimeout: 'pause', autoResume: true },
    });
    const before = await sandbox.getInfo();
    await sandbox.pause();
    const paused = await sandbox.getInfo();
    expect(paused).toMatchObject({
      state: 'paused',
      metadata: { user: 'x' },
      lifecycle: { onTimeout: 'pause', autoResume: true },
      templateId: before.templateId,
    });
    expect(paused.startedAt).toEqual(before.startedAt);
    // While paused the end is the time of the pause.
    expect(Math.abs(paused.endAt.getTime() - Date.now())).toBeLessThan(5000);
    const again = await connect(sandbox.sandboxId);
    const after = await again.getInfo();
    expect(after.startedAt.getTime()).toBeGreaterThan(paused.endAt.getTime());
    expect(after).toMatchObject({ metadata: { user: 'x' }, lifecycle: { onTimeout: 'pause', autoResume: true } });
    expect((await again.commands.run('echo $A')).stdout).toBe('b\n');
  });

  it('is refused for what does not exist, and a paused sandbox is deleted like any other', async () => {
    await expect(Sandbox.pause('i00000000000000000000', service().connection)).rejects.toThrow(NotFoundError);
    const sandbox = await create();
    await sandbox.pause();
    expect(await sandbox.kill()).toBe(true);
    expect(await sandbox.kill()).toBe(false);
    await expect(connect(sandbox.sandboxId)).rejects.toThrow(NotFoundError);
  });

  async function detail(sandbox: Sandbox): Promise<object> {
    return (await (await service().fetch(`/sandboxes/${sandbox.sandboxId}`)).json()) as object;
  }

  async function lastLine(sandbox: Sandbox): Promise<string | undefined> {
    const response = await service().fetch(`/v2/sandboxes/${sandbox.sandboxId}/logs?limit=1`);
    return ((await response.json()) as { logs: { message: string }[] }).logs[0]?.message;
  }
});
