import { setTimeout as sleep } from 'node:timers/promises';
import {
  AuthenticationError,
  CommandExitError,
  InvalidArgumentError,
  NotFoundError,
  Sandbox,
  SandboxError,
  TimeoutError,
} from 'e2b';
import { describe, expect, it } from 'vitest';
import { describeInSandbox, failureOf } from '../support/sdk.ts';

const NO_SUCH_PID = 999_999;

describeInSandbox(
  'commands',
  ({ sandbox, service, fresh, shell, rootShell }) => {
    const commands = () => sandbox().commands;
    const isListed = async (pid: number) => (await commands().list()).some((process) => process.pid === pid);

    describe('run', () => {
      it('gives both outputs and the exit code', async () => {
        const result = await commands().run('echo out; echo err >&2');
        expect(result).toEqual({ exitCode: 0, error: undefined, stdout: 'out\n', stderr: 'err\n' });
      });

      it.each([
        ['exit 3', 3, 'exit status 3'],
        ['no-such-command', 127, 'exit status 127'],
        ['touch /tmp/plain && /tmp/plain', 126, 'exit status 126'],
        ['kill -9 $$', -1, 'signal: killed'],
        ['kill -TERM $$', -1, 'signal: terminated'],
      ])('fails with the exit code: %s', async (command, exitCode, error) => {
        const failure = await failureOf(commands().run(`echo said; ${command}`));
        expect(failure).toBeInstanceOf(CommandExitError);
        expect(failure).toMatchObject({ exitCode, error, stdout: 'said\n' });
      });

      it('runs in a login shell with pipes, quotes and several lines', async () => {
        expect(await shell('shopt -q login_shell && echo login')).toBe('login\n');
        expect(await shell(`printf '%s\\n' "a 'b' \\"c\\"" | tr a-z A-Z\necho "$((6*7))"`)).toBe(`A 'B' "C"\n42\n`);
        expect(await shell('echo 漢字 🙂')).toBe('漢字 🙂\n');
      });

      it('has nothing to read unless stdin is asked for', async () => {
        expect(await shell('cat; echo end')).toBe('end\n');
      });

      it('composes the environment: its own, the sandbox, the request', async () => {
        const all = await commands().run('env', { envs: { FROM_REQUEST: 'r', SHARED: 'request' } });
        const env = Object.fromEntries(all.stdout.split('\n').map((line) => line.split(/=(.*)/s).slice(0, 2)));
        expect(env).toMatchObject({
          HOME: '/home/user',
          USER: 'user',
          LOGNAME: 'user',
          FROM_SANDBOX: 's',
          FROM_REQUEST: 'r',
          SHARED: 'request',
          E2B_SANDBOX: 'true',
          E2B_SANDBOX_ID: sandbox().sandboxId,
        });
        expect(env['PATH']).toContain('/usr/local/bin');
        expect(env['E2B_TEMPLATE_ID']).toMatch(/./);
        expect(await shell('echo $SHARED')).toBe('sandbox\n');
        expect((await commands().run('printf %s "$ODD"', { envs: { ODD: 'a=b\n"c" \'d\' $HOME' } })).stdout).toBe(
          'a=b\n"c" \'d\' $HOME',
        );
      });

      it('starts in the directory that is named', async () => {
        const directory = await fresh();
        expect(await shell('pwd')).toBe('/home/user\n');
        expect((await commands().run('pwd', { cwd: directory })).stdout).toBe(`${directory}\n`);
        expect((await commands().run('pwd', { cwd: directory.split('/').at(-1) as string })).stdout).toBe(
          `${directory}\n`,
        );
        const error = await failureOf(commands().run('pwd', { cwd: '/no/such' }));
        expect(error).toBeInstanceOf(InvalidArgumentError);
        expect(error.message).toContain("cwd '/no/such' does not exist");
      });

      it('runs as the user who is named, with the groups and home of that user', async () => {
        expect(await shell('id -un; id -u; echo $HOME; sudo id -un')).toBe('user\n1000\n/home/user\nroot\n');
        expect((await commands().run('id -un; echo $HOME $USER; pwd', { user: 'root' })).stdout).toMatch(
          /^root\n\/root root\n/,
        );
        await rootShell('useradd -m -G sudo second');
        expect((await commands().run('id -Gn; echo ~; whoami', { user: 'second', cwd: '/tmp' })).stdout).toBe(
          'second sudo\n/home/second\nsecond\n',
        );
        const error = await failureOf(commands().run('true', { user: 'nobody-here' }));
        expect(error).toBeInstanceOf(AuthenticationError);
        expect(error.message).toContain("invalid username: 'nobody-here'");
      });

      it('calls back while the command runs', async () => {
        const out: string[] = [];
        const err: string[] = [];
        const running = commands().run('echo one; echo oops >&2; sleep 0.6; echo two', {
          onStdout: (data) => void out.push(data),
          onStderr: (data) => void err.push(data),
        });
        await expect.poll(() => out).toEqual(['one\n']);
        await expect.poll(() => err).toEqual(['oops\n']);
        await running;
        expect(out).toEqual(['one\n', 'two\n']);
      });

      it('brings ten megabytes of output unharmed', async () => {
        const { stdout } = await commands().run('seq 1 1500000 | head -c 10000000; echo; echo end');
        expect(stdout).toHaveLength(10_000_005);
        expect(stdout.startsWith('1\n2\n3\n')).toBe(true);
        expect(stdout.endsWith('\nend\n')).toBe(true);
      });

      it('joins characters that were torn apart, and shows what is no text', async () => {
        const script = `import sys,time
for byte in 'ü漢🙂'.encode(): sys.stdout.buffer.write(bytes([byte])); sys.stdout.buffer.flush(); time.sleep(0.02)
sys.stdout.buffer.write(b'|\\xff|')`;
        const { stdout } = await commands().run(`python3 -c '${script.replaceAll("'", `'"'"'`)}'`);
        expect(stdout).toBe('ü漢🙂|\ufffd|');
      });

      it('keeps output in order across a thousand writes', async () => {
        const { stdout } = await commands().run('for i in $(seq 1 1000); do echo $i; done');
        expect(stdout.trim().split('\n').map(Number)).toEqual(Array.from({ length: 1000 }, (_, index) => index + 1));
      });

      it('runs thirty at once', async () => {
        const results = await Promise.all(
          Array.from({ length: 30 }, (_, index) => commands().run(`seq 1 500; echo ${index}`)),
        );
        for (const [index, { stdout }] of results.entries()) expect(stdout.endsWith(`500\n${index}\n`)).toBe(true);
      });

      it('ends only when the children that hold its output have ended', async () => {
        const begun = Date.now();
        expect(await shell('(sleep 1; echo late) & echo early')).toBe('early\nlate\n');
        expect(Date.now() - begun).toBeGreaterThan(900);
      });

      it('leaves a child behind that does not hold its output', async () => {
        const begun = Date.now();
        const file = `${await fresh()}/done`;
        await shell(`(sleep 1; echo done > ${file}) > /dev/null 2>&1 &`);
        expect(Date.now() - begun).toBeLessThan(900);
        await expect.poll(() => sandbox().files.exists(file), { timeout: 5000 }).toBe(true);
      });
    });

    describe('timeouts', () => {
      it('kills the command at its timeout', async () => {
        const marker = `sleep-${Date.now()}`;
        const begun = Date.now();
        const error = await failureOf(commands().run(`echo begun; exec -a ${marker} sleep 40`, { timeoutMs: 800 }));
        expect(error).toBeInstanceOf(TimeoutError);
        expect(Date.now() - begun).toBeLessThan(4000);
        await expect.poll(() => shell(`pgrep -cf ^${marker} || true`)).toBe('0\n');
      });

      it('keeps what was said until then', async () => {
        const command = await commands().run('echo begun; exec sleep 40', { background: true, timeoutMs: 600 });
        await expect(command.wait()).rejects.toThrow(TimeoutError);
        expect(command.stdout).toBe('begun\n');
        await expect.poll(() => isListed(command.pid)).toBe(false);
      });

      it('holds when the client has left', async () => {
        const command = await commands().run('exec sleep 40', { background: true, timeoutMs: 900 });
        await command.disconnect();
        expect(await isListed(command.pid)).toBe(true);
        await expect.poll(() => isListed(command.pid), { timeout: 5000 }).toBe(false);
      });

      it('is none when it is 0', async () => {
        const command = await commands().run('sleep 0.5; echo late', { timeoutMs: 0 });
        expect(command.stdout).toBe('late\n');
      });

      it('ends with the caller’s signal, and the command goes on', async () => {
        const leaving = new AbortController();
        const file = `${await fresh()}/went-on`;
        setTimeout(() => leaving.abort(), 400);
        const command = await commands().run(`sleep 1.2; touch ${file}`, { background: true, signal: leaving.signal });
        await expect(command.wait()).rejects.toThrow();
        await expect.poll(() => sandbox().files.exists(file), { timeout: 5000 }).toBe(true);
      });
    });

    describe('in the background', () => {
      it('gives a handle at once', async () => {
        const command = await commands().run('sleep 0.3; echo done', { background: true });
        expect(command.pid).toBeGreaterThan(0);
        expect(command.exitCode).toBeUndefined();
        expect(await command.wait()).toMatchObject({ exitCode: 0, stdout: 'done\n' });
        expect(command.exitCode).toBe(0);
      });

      it('is listed with what it was started with while it runs', async () => {
        const directory = await fresh();
        const command = await commands().run('sleep 30', { background: true, envs: { A: 'b' }, cwd: directory });
        const listed = (await commands().list()).find((process) => process.pid === command.pid);
        expect(listed).toEqual({
          pid: command.pid,
          tag: undefined,
          cmd: '/bin/bash',
          args: ['-l', '-c', 'sleep 30'],
          envs: { A: 'b' },
          cwd: directory,
        });
        expect(await command.kill()).toBe(true);
        await expect(command.wait()).rejects.toMatchObject({ exitCode: -1, error: 'signal: killed' });
        expect(await isListed(command.pid)).toBe(false);
      });

      it('is killed by its number, once', async () => {
        const command = await commands().run('exec sleep 30', { background: true });
        expect(await commands().kill(command.pid)).toBe(true);
        await expect(command.wait()).rejects.toThrow(CommandExitError);
        expect(await commands().kill(command.pid)).toBe(false);
        expect(await commands().kill(NO_SUCH_PID)).toBe(false);
      });

      it('ends when it is killed though a child holds its output', async () => {
        const command = await commands().run('sleep 20 & echo up; wait', { background: true });
        await expect.poll(() => command.stdout).toBe('up\n');
        const begun = Date.now();
        await command.kill();
        await expect(command.wait()).rejects.toMatchObject({ error: 'signal: killed' });
        expect(Date.now() - begun).toBeLessThan(3000);
      });
    });

    describe('stdin', () => {
      it('takes text and bytes, by handle and by number', async () => {
        const command = await commands().run('cat', { background: true, stdin: true });
        await commands().sendStdin(command.pid, 'one\n');
        await command.sendStdin(new TextEncoder().encode('zwei ü\n'));
        await expect.poll(() => command.stdout).toBe('one\nzwei ü\n');
        await command.closeStdin();
        expect(await command.wait()).toMatchObject({ exitCode: 0, stdout: 'one\nzwei ü\n' });
      });

      it('takes a megabyte', async () => {
        const command = await commands().run('wc -c', { background: true, stdin: true });
        await command.sendStdin('x'.repeat(1024 * 1024));
        await commands().closeStdin(command.pid);
        expect((await command.wait()).stdout.trim()).toBe('1048576');
      });

      it('is closed once, and a second time without harm', async () => {
        const command = await commands().run('cat > /dev/null; sleep 0.5', { background: true, stdin: true });
        await command.closeStdin();
        await command.closeStdin();
        await expect(command.sendStdin('late')).rejects.toThrow(/stdin not enabled or closed/);
        await command.wait();
      });

      it('is refused where it was not asked for, and where nothing runs', async () => {
        const command = await commands().run('sleep 30', { background: true });
        await expect(command.sendStdin('x')).rejects.toThrow(SandboxError);
        await expect(command.sendStdin('x')).rejects.toThrow(/error writing to stdin: stdin not enabled or closed/);
        await command.kill();
        await expect(commands().sendStdin(NO_SUCH_PID, 'x')).rejects.toThrow(NotFoundError);
        await expect(commands().closeStdin(NO_SUCH_PID)).rejects.toThrow(/process with pid 999999 not found/);
      });
    });

    describe('connect', () => {
      it('takes over the output from now on', async () => {
        const command = await commands().run('echo first; sleep 1; echo second; exit 5', { background: true });
        await expect.poll(() => command.stdout).toBe('first\n');
        await command.disconnect();
        const out: string[] = [];
        const again = await commands().connect(command.pid, { onStdout: (data) => void out.push(data) });
        expect(again.pid).toBe(command.pid);
        await expect(again.wait()).rejects.toMatchObject({ exitCode: 5, stdout: 'second\n' });
        expect(out).toEqual(['second\n']);
      });

      it('gives every subscriber all of it', async () => {
        const command = await commands().run('read; seq 1 20000', { background: true, stdin: true });
        const others = await Promise.all([commands().connect(command.pid), commands().connect(command.pid)]);
        await command.sendStdin('\n');
        const expected = (await command.wait()).stdout;
        expect(expected.endsWith('\n20000\n')).toBe(true);
        for (const other of others) expect((await other.wait()).stdout).toBe(expected);
      });

      it('reaches a command of an earlier connection to the sandbox', async () => {
        const command = await commands().run('read line; echo got $line', { background: true, stdin: true });
        await command.disconnect();
        const elsewhere = await Sandbox.connect(sandbox().sandboxId, service().connection);
        const again = await elsewhere.commands.connect(command.pid);
        await elsewhere.commands.sendStdin(command.pid, 'it\n');
        expect((await again.wait()).stdout).toBe('got it\n');
      });

      it('tells the end of a command that has just ended', async () => {
        const command = await commands().run('echo gone; exit 4', { background: true });
        await expect(command.wait()).rejects.toThrow(CommandExitError);
        const again = await commands().connect(command.pid);
        await expect(again.wait()).rejects.toMatchObject({ exitCode: 4, stdout: '' });
      });

      it('only leaves at its own timeout', async () => {
        const command = await commands().run('sleep 1.5; echo whole', { background: true });
        const brief = await commands().connect(command.pid, { timeoutMs: 300 });
        await expect(brief.wait()).rejects.toThrow(TimeoutError);
        expect((await command.wait()).stdout).toBe('whole\n');
      });

      it('fails where nothing runs', async () => {
        const error = await failureOf(commands().connect(NO_SUCH_PID));
        expect(error).toBeInstanceOf(NotFoundError);
        expect(error.message).toContain(`process with pid ${NO_SUCH_PID} not found`);
      });
    });

    describe('the sandbox and its commands', () => {
      it('ends them when it is killed, and says so', async () => {
        const doomed = await Sandbox.create(service().connection);
        const command = await doomed.commands.run('sleep 60', { background: true });
        const watching = failureOf(command.wait());
        await sleep(200);
        expect(await doomed.kill()).toBe(true);
        const error = await watching;
        expect(error).toBeInstanceOf(TimeoutError);
        expect(error.message).toContain('killed or reached its end of life');
        await expect(doomed.commands.run('true')).rejects.toThrow();
        await expect(doomed.files.read('/etc/passwd')).rejects.toThrow(TimeoutError);
        expect(await doomed.isRunning()).toBe(false);
      });

      it('has processes of its own, under a PID 1 that reaps', async () => {
        expect(await shell('cat /proc/1/comm')).toMatch(/agent|init|sandbar/);
        await shell('for i in $(seq 1 20); do (sleep 0.01 &) ; done; sleep 0.5');
        expect(await shell("ps -eo stat= | grep -c '^Z' || true")).toBe('0\n');
      });
    });
  },
  { sandbox: { envs: { FROM_SANDBOX: 's', SHARED: 'sandbox' } } },
);
