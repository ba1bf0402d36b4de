import {
  CommandExitError,
  FileNotFoundError,
  FilesystemEventType,
  FileType,
  InvalidArgumentError,
  NotFoundError,
  Sandbox,
  TimeoutError,
} from 'e2b';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { EnvdServer } from '../../tests/support/envd-server.ts';

/** Machines that run tests are busy: what must come is waited for long enough. */
const eventually = <T>(seen: () => T) => expect.poll(seen, { timeout: 10_000 });

/** The in-sandbox interface through the official JavaScript client. */
describe('the official client', { timeout: 20_000 }, () => {
  let server: EnvdServer;
  let sandbox: Sandbox;

  beforeAll(async () => {
    server = await EnvdServer.start();
  });
  afterAll(() => server.stop());
  beforeEach(() => {
    const token = 'a'.repeat(64);
    const { row } = server.become({ secure: true, envdAccessToken: token });
    sandbox = new Sandbox({
      sandboxId: row.id,
      envdVersion: row.envdVersion,
      envdAccessToken: token,
      sandboxUrl: server.url,
      apiKey: `e2b_${'0'.repeat(40)}`,
    });
  });
  const at = (name: string) => `${server.dir}/${name}`;

  describe('files', () => {
    test('what is written is read back, as text, bytes, blob and stream', async () => {
      const info = await sandbox.files.write(at('hello.txt'), 'größe');
      expect(info).toMatchObject({ name: 'hello.txt', path: at('hello.txt'), type: 'file' });
      expect(await sandbox.files.read(at('hello.txt'))).toBe('größe');
      expect(Buffer.from(await sandbox.files.read(at('hello.txt'), { format: 'bytes' })).toString()).toBe('größe');
      expect(await (await sandbox.files.read(at('hello.txt'), { format: 'blob' })).text()).toBe('größe');
      let streamed = '';
      for await (const chunk of await sandbox.files.read(at('hello.txt'), { format: 'stream' })) {
        streamed += Buffer.from(chunk).toString();
      }
      expect(streamed).toBe('größe');
    });

    test('an empty file is empty', async () => {
      await sandbox.files.write(at('empty'), '');
      expect(await sandbox.files.read(at('empty'))).toBe('');
    });

    test('a file is overwritten, never left longer', async () => {
      await sandbox.files.write(at('over'), 'a long text');
      await sandbox.files.write(at('over'), 'short');
      expect(await sandbox.files.read(at('over'))).toBe('short');
    });

    test('several files at once, in directories that are made', async () => {
      const written = await sandbox.files.write([
        { path: at('many/a.txt'), data: 'A' },
        { path: at('many/deep/b.txt'), data: new Blob(['B']) },
        { path: at('many/c with space.txt'), data: new TextEncoder().encode('C').buffer },
      ]);
      expect(written.map((file) => file.path)).toEqual([
        at('many/a.txt'),
        at('many/deep/b.txt'),
        at('many/c with space.txt'),
      ]);
      expect(await sandbox.files.read(at('many/deep/b.txt'))).toBe('B');
    });

    test('raw bodies, compressed ones, streams', async () => {
      await sandbox.files.write(at('raw'), 'raw', { useOctetStream: true });
      expect(await sandbox.files.read(at('raw'))).toBe('raw');
      await sandbox.files.write(at('zipped'), 'z'.repeat(100_000), { gzip: true });
      expect((await sandbox.files.read(at('zipped'))).length).toBe(100_000);
      const stream = new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode('one '));
          controller.enqueue(new TextEncoder().encode('two'));
          controller.close();
        },
      });
      await sandbox.files.write(at('streamed'), stream);
      expect(await sandbox.files.read(at('streamed'))).toBe('one two');
    });

    test('metadata is stored, shown and replaced', async () => {
      await sandbox.files.write(at('meta'), 'x', { metadata: { author: 'me', run: '1' } });
      expect((await sandbox.files.getInfo(at('meta'))).metadata).toEqual({ author: 'me', run: '1' });
      await sandbox.files.write(at('meta'), 'x', { metadata: { author: 'you' } });
      expect((await sandbox.files.getInfo(at('meta'))).metadata).toEqual({ author: 'you' });
    });

    test('what is missing is not found', async () => {
      await expect(sandbox.files.read(at('missing'))).rejects.toThrow(FileNotFoundError);
      await expect(sandbox.files.getInfo(at('missing'))).rejects.toThrow(FileNotFoundError);
      await expect(sandbox.files.list(at('missing'))).rejects.toThrow(FileNotFoundError);
      expect(await sandbox.files.exists(at('missing'))).toBe(false);
      await sandbox.files.remove(at('missing'));
    });

    test('directories: made, listed by depth, moved, removed', async () => {
      expect(await sandbox.files.makeDir(at('dirs/x/y'))).toBe(true);
      expect(await sandbox.files.makeDir(at('dirs/x/y'))).toBe(false);
      await sandbox.files.write(at('dirs/x/file'), '');
      expect((await sandbox.files.list(at('dirs'))).map((entry) => entry.name)).toEqual(['x']);
      const deep = await sandbox.files.list(at('dirs'), { depth: 3 });
      expect(deep.map((entry) => entry.path)).toEqual([at('dirs/x'), at('dirs/x/file'), at('dirs/x/y')]);
      expect(deep[0]?.type).toBe(FileType.DIR);
      await expect(sandbox.files.list(at('dirs/x/file'))).rejects.toThrow(InvalidArgumentError);
      const moved = await sandbox.files.rename(at('dirs/x/file'), at('dirs/new/place'));
      expect(moved.path).toBe(at('dirs/new/place'));
      expect(await sandbox.files.exists(at('dirs/x/file'))).toBe(false);
      await sandbox.files.remove(at('dirs'));
      expect(await sandbox.files.exists(at('dirs'))).toBe(false);
    });

    test('links are shown with the type of what they lead to', async () => {
      await sandbox.commands.run(`cd ${server.dir} && mkdir linked && ln -s linked link && ln -s nowhere broken`);
      const info = await sandbox.files.getInfo(at('link'));
      expect(info).toMatchObject({ type: FileType.DIR, symlinkTarget: at('linked'), permissions: 'Lrwxrwxrwx' });
      const names = (await sandbox.files.list(server.dir)).map((entry) => entry.name);
      expect(names).toContain('link');
      expect(names).not.toContain('broken');
    });

    test('an unknown user is refused', async () => {
      await expect(sandbox.files.list('/', { user: 'nobody-here' })).rejects.toThrow(/invalid username: 'nobody-here'/);
      await expect(sandbox.files.read('/etc/passwd', { user: 'nobody-here' })).rejects.toThrow(
        /unknown user nobody-here/,
      );
    });

    test('files belong to the user who writes them, relative paths to that user', async () => {
      await sandbox.files.write(at('owned'), 'x', { user: 'nobody' });
      expect((await sandbox.files.getInfo(at('owned'))).owner).toBe('nobody');
    });

    test('watching a directory', async () => {
      await sandbox.files.makeDir(at('watched'));
      const seen: string[] = [];
      const handle = await sandbox.files.watchDir(
        at('watched'),
        (event) => void seen.push(`${event.type} ${event.name}`),
        {
          recursive: true,
        },
      );
      await sandbox.files.write(at('watched/new.txt'), 'x');
      await eventually(() => seen).toContain(`${FilesystemEventType.CREATE} new.txt`);
      await eventually(() => seen).toContain(`${FilesystemEventType.WRITE} new.txt`);
      await sandbox.files.makeDir(at('watched/sub'));
      await sandbox.files.write(at('watched/sub/inner'), 'x');
      await eventually(() => seen).toContain(`${FilesystemEventType.CREATE} sub/inner`);
      await sandbox.files.rename(at('watched/new.txt'), at('watched/old.txt'));
      await eventually(() => seen.filter((line) => /new.txt|old.txt/.test(line)).slice(-2)).toEqual([
        `${FilesystemEventType.RENAME} new.txt`,
        `${FilesystemEventType.CREATE} old.txt`,
      ]);
      await sandbox.files.remove(at('watched/old.txt'));
      await eventually(() => seen.at(-1)).toBe(`${FilesystemEventType.REMOVE} old.txt`);
      await handle.stop();
      await expect(sandbox.files.watchDir(at('no-such'), () => undefined)).rejects.toThrow(FileNotFoundError);
    });
  });

  describe('commands', () => {
    test('a command gives its output, both streams, and its exit code', async () => {
      const result = await sandbox.commands.run('echo out; echo err >&2; echo $GLOBAL $OWN; pwd', {
        envs: { OWN: 'mine' },
      });
      expect(result).toMatchObject({ exitCode: 0, stdout: `out\nyes mine\n${server.dir}\n`, stderr: 'err\n' });
      await expect(sandbox.commands.run('exit 3')).rejects.toMatchObject({ exitCode: 3, name: 'CommandExitError' });
      await expect(sandbox.commands.run('no-such-command')).rejects.toMatchObject({ exitCode: 127 });
    });

    test('a working directory that is missing is an invalid argument', async () => {
      await expect(sandbox.commands.run('pwd', { cwd: '/no/such' })).rejects.toThrow(/cwd '\/no\/such' does not exist/);
    });

    test('another user', async () => {
      expect((await sandbox.commands.run('id -un', { user: 'nobody', cwd: '/' })).stdout).toBe('nobody\n');
      await expect(sandbox.commands.run('true', { user: 'nobody-here' })).rejects.toThrow(/invalid username/);
    });

    test('output comes while the command runs', async () => {
      const pieces: string[] = [];
      const command = await sandbox.commands.run('echo one; sleep 0.3; echo two', {
        background: true,
        onStdout: (data) => void pieces.push(data),
      });
      await eventually(() => pieces).toEqual(['one\n']);
      await command.wait();
      expect(pieces).toEqual(['one\n', 'two\n']);
    });

    test('standard input', async () => {
      const command = await sandbox.commands.run('cat', { background: true, stdin: true });
      await sandbox.commands.sendStdin(command.pid, 'typed');
      await command.closeStdin();
      expect((await command.wait()).stdout).toBe('typed');
      const closed = await sandbox.commands.run('sleep 5', { background: true });
      await expect(sandbox.commands.sendStdin(closed.pid, 'x')).rejects.toThrow(/stdin not enabled or closed/);
      await closed.kill();
    });

    test('listed while it runs, killed once', async () => {
      const command = await sandbox.commands.run('sleep 30', { background: true, envs: { A: 'b' } });
      const listed = (await sandbox.commands.list()).find((process) => process.pid === command.pid);
      expect(listed).toMatchObject({ cmd: '/bin/bash', args: ['-l', '-c', 'sleep 30'], envs: { A: 'b' } });
      expect(await sandbox.commands.kill(command.pid)).toBe(true);
      await expect(command.wait()).rejects.toMatchObject({ exitCode: -1, error: 'signal: killed' });
      expect((await sandbox.commands.list()).some((process) => process.pid === command.pid)).toBe(false);
      expect(await sandbox.commands.kill(999_999)).toBe(false);
    });

    test('a client that leaves does not end the command; another can take over', async () => {
      const command = await sandbox.commands.run('sleep 0.4; echo later', { background: true });
      await command.disconnect();
      const again = await sandbox.commands.connect(command.pid);
      expect((await again.wait()).stdout).toBe('later\n');
      await expect(sandbox.commands.connect(999_999)).rejects.toThrow(NotFoundError);
    });

    test('the end of a command is remembered for a while', async () => {
      const command = await sandbox.commands.run('exit 4', { background: true });
      await expect(command.wait()).rejects.toThrow(CommandExitError);
      const again = await sandbox.commands.connect(command.pid);
      await expect(again.wait()).rejects.toMatchObject({ exitCode: 4 });
    });

    test('at its deadline a command is killed and the call times out', async () => {
      const command = await sandbox.commands.run('echo begun; exec sleep 31', { background: true, timeoutMs: 2500 });
      await expect(command.wait()).rejects.toThrow(TimeoutError);
      expect(command.stdout).toBe('begun\n');
      // The client keeps time too and may be the first to give up.
      await eventually(async () => (await sandbox.commands.list()).some((process) => process.pid === command.pid)).toBe(
        false,
      );
    });

    test('the deadline holds for a command whose client has left', async () => {
      const command = await sandbox.commands.run('exec sleep 32', { background: true, timeoutMs: 700 });
      await command.disconnect();
      await eventually(async () => (await sandbox.commands.list()).some((p) => p.pid === command.pid)).toBe(false);
    });

    test('large output arrives whole', async () => {
      const result = await sandbox.commands.run('head -c 5000000 /dev/zero | tr "\\0" x');
      expect(result.stdout.length).toBe(5_000_000);
    });

    test('twenty commands at once', async () => {
      const results = await Promise.all(
        Array.from({ length: 20 }, (_, index) => sandbox.commands.run(`seq 1 1000; echo ${index}`)),
      );
      for (const [index, { stdout }] of results.entries()) expect(stdout.endsWith(`1000\n${index}\n`)).toBe(true);
    });
  });

  describe('terminals', () => {
    test('a shell on a terminal: typing, resizing, ending', async () => {
      let screen = '';
      const terminal = await sandbox.pty.create({
        cols: 80,
        rows: 24,
        onData: (data) => {
          screen += Buffer.from(data).toString();
        },
        envs: { PS1: '$ ' },
      });
      const type = (text: string) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text));
      await type('stty size; echo TERM=$TERM\n');
      await eventually(() => screen).toContain('24 80');
      await eventually(() => screen).toContain('TERM=xterm-256color');
      await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 });
      await type('stty size\n');
      await eventually(() => screen).toContain('30 100');
      await type('exit 7\n');
      await expect(terminal.wait()).rejects.toMatchObject({ exitCode: 7 });
    });

    test('a terminal can be killed', async () => {
      const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => undefined });
      expect(await sandbox.pty.kill(terminal.pid)).toBe(true);
      await expect(terminal.wait()).rejects.toMatchObject({ error: 'signal: killed' });
    });
  });

  describe('life', () => {
    test('a running sandbox says so', async () => {
      expect(await sandbox.isRunning()).toBe(true);
      server.sandbox.end();
      expect(await sandbox.isRunning()).toBe(false);
    });

    test('the end of the sandbox ends a command with a timeout error that says why', async () => {
      const command = await sandbox.commands.run('sleep 33', { background: true });
      setTimeout(() => server.sandbox.end(), 200);
      await expect(command.wait()).rejects.toThrow(/killed or reached its end of life/);
    });

    test('a wrong token opens nothing', async () => {
      const intruder = new Sandbox({
        sandboxId: sandbox.sandboxId,
        envdVersion: '0.6.13',
        envdAccessToken: 'guess',
        sandboxUrl: server.url,
        apiKey: `e2b_${'0'.repeat(40)}`,
      });
      await expect(intruder.files.list('/')).rejects.toThrow(/unauthorized access|unauthenticated/);
      await expect(intruder.files.read('/etc/passwd')).rejects.toThrow();
      await expect(intruder.commands.run('id')).rejects.toThrow();
    });
  });
});
