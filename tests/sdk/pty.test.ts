import { AuthenticationError, CommandExitError, NotFoundError, type Sandbox, TimeoutError } from 'e2b';
import { expect, it } from 'vitest';
import { describeInSandbox } from '../support/sdk.ts';

type PtyCreateOpts = Parameters<Sandbox['pty']['create']>[0];

const bytes = (text: string) => new TextEncoder().encode(text);

describeInSandbox('pty', ({ sandbox, fresh }) => {
  const pty = () => sandbox().pty;

  /** A terminal with a plain prompt and all that it has shown. */
  async function terminal(options: Partial<PtyCreateOpts> = {}) {
    const decoder = new TextDecoder();
    let screen = '';
    const handle = await pty().create({
      cols: 80,
      rows: 24,
      onData: (data) => {
        screen += decoder.decode(data, { stream: true });
      },
      ...options,
    });
    return {
      handle,
      pid: handle.pid,
      screen: () => screen,
      type: (text: string) => pty().sendInput(handle.pid, bytes(text)),
      shows: (pattern: RegExp) => expect.poll(() => screen, { timeout: 10_000 }).toMatch(pattern),
    };
  }

  it('is an interactive login shell on a terminal', async () => {
    const { handle, type, shows } = await terminal();
    await type('tty; shopt -q login_shell && echo "log"in; echo "[$-]"\n');
    await shows(/\/dev\/pts\/\d+/);
    await shows(/login\r\n/);
    await shows(/\[\w*i\w*\]/);
    await type('exit\n');
    expect(await handle.wait()).toMatchObject({ exitCode: 0 });
  });

  it('has the size that was asked for, and another after a resize, with a signal to the program', async () => {
    const { handle, pid, type, shows } = await terminal({ cols: 97, rows: 31 });
    await type('stty size\n');
    await shows(/31 97\r\n/);
    await type(`trap 'echo CHANGED $(stty size)' WINCH; echo "rea"dy\n`);
    await shows(/ready\r\n/);
    await pty().resize(pid, { cols: 132, rows: 50 });
    await type('\n');
    await shows(/CHANGED 50 132/);
    await handle.kill();
  });

  it('has a terminal environment, over which the caller’s wins', async () => {
    const one = await terminal();
    await one.type('echo "T=$TERM L=$LANG A=$LC_ALL U=$USER"\n');
    await one.shows(/T=xterm-256color L=C\.UTF-8 A=C\.UTF-8 U=user/);
    await one.handle.kill();
    const two = await terminal({ envs: { TERM: 'dumb', EXTRA: 'given' } });
    await two.type('echo "T=$TERM E=$EXTRA"\n');
    await two.shows(/T=dumb E=given/);
    await two.handle.kill();
  });

  it('starts where and as whom it is told', async () => {
    const directory = await fresh();
    const { handle, type, shows } = await terminal({ cwd: directory, user: 'root' });
    await type('echo "$(pwd) $(id -un)"\n');
    await shows(new RegExp(`${directory} root\\r\\n`));
    await handle.kill();
    await expect(terminal({ user: 'nobody-here' })).rejects.toThrow(AuthenticationError);
    await expect(terminal({ cwd: '/no/such' })).rejects.toThrow(/cwd '\/no\/such' does not exist/);
  });

  it('passes control characters and characters of many bytes', async () => {
    const { handle, type, shows } = await terminal();
    await type('echo "rea"dy; cat\n');
    await shows(/ready\r\n/);
    await type('grüße 漢字 🙂\n');
    await shows(/grüße 漢字 🙂\r\ngrüße 漢字 🙂\r\n/);
    await type('\x03');
    await type('echo "af"ter\n');
    await shows(/after\r\n/);
    await type('\x04');
    expect((await handle.wait()).exitCode).toBe(0);
  });

  it('gives the exit code of its shell', async () => {
    const { handle, type } = await terminal();
    await type('exit 7\n');
    await expect(handle.wait()).rejects.toThrow(CommandExitError);
    await expect(handle.wait()).rejects.toMatchObject({ exitCode: 7 });
  });

  it('is killed by its number, and with it what runs in it', async () => {
    const { handle, pid, type, shows } = await terminal();
    await type('echo "st"arted; exec -a in-terminal sleep 100\n');
    await shows(/started/);
    expect(await pty().kill(pid)).toBe(true);
    await expect(handle.wait()).rejects.toMatchObject({ exitCode: -1, error: 'signal: killed' });
    expect(await pty().kill(pid)).toBe(false);
    await expect.poll(async () => (await sandbox().commands.run('pgrep -cf ^in-terminal || true')).stdout).toBe('0\n');
  });

  it('hangs up on a program in the background when its shell goes', async () => {
    const { handle, pid, type, shows } = await terminal();
    await type('(exec -a left-behind sleep 101) & sleep 0.2; echo "run"ning\n');
    await shows(/running/);
    await pty().kill(pid);
    await expect(handle.wait()).rejects.toThrow(CommandExitError);
  });

  it('is listed among the commands', async () => {
    const { handle, pid } = await terminal();
    const listed = (await sandbox().commands.list()).find((process) => process.pid === pid);
    expect(listed).toMatchObject({ cmd: '/bin/bash', args: ['-i', '-l'] });
    await handle.kill();
  });

  it('can be left and come back to', async () => {
    const { handle, pid, type, shows } = await terminal();
    await type('VARIABLE=kept; echo "se"t\n');
    await shows(/set\r\n/);
    await handle.disconnect();
    let screen = '';
    const again = await pty().connect(pid, {
      onData: (data) => {
        screen += Buffer.from(data).toString();
      },
    });
    expect(again.pid).toBe(pid);
    await type('echo "<$VARIABLE>"\n');
    await expect.poll(() => screen).toContain('<kept>');
    await type('exit 3\n');
    await expect(again.wait()).rejects.toMatchObject({ exitCode: 3 });
    await expect(pty().connect(999_999)).rejects.toThrow(NotFoundError);
  });

  it('is killed at its timeout', async () => {
    const { handle, pid } = await terminal({ timeoutMs: 700 });
    await expect(handle.wait()).rejects.toThrow(TimeoutError);
    const isListed = async () => (await sandbox().commands.list()).some((process) => process.pid === pid);
    await expect.poll(isListed).toBe(false);
  });

  it('brings much output unharmed', async () => {
    const { handle, type, screen, shows } = await terminal();
    await type('stty -onlcr; echo; seq 1 60000; echo "EN"D; exit\n');
    await shows(/\nEND\n/);
    await handle.wait();
    const numbers = screen()
      .split('\n')
      .filter((line) => /^\d+$/.test(line));
    expect(numbers).toHaveLength(60_000);
    expect(numbers.at(-1)).toBe('60000');
  });

  it('refuses input and resize where no terminal is', async () => {
    const command = await sandbox().commands.run('sleep 30', { background: true, stdin: true });
    await expect(pty().sendInput(command.pid, bytes('x'))).rejects.toThrow(/error writing to tty/);
    await expect(pty().resize(command.pid, { cols: 1, rows: 1 })).rejects.toThrow(
      /error resizing tty: tty not assigned to process/,
    );
    await command.kill();
    await expect(pty().sendInput(999_999, bytes('x'))).rejects.toThrow(NotFoundError);
    await expect(pty().resize(999_999, { cols: 1, rows: 1 })).rejects.toThrow(NotFoundError);
    const { handle, pid } = await terminal();
    await expect(sandbox().commands.sendStdin(pid, 'x')).rejects.toThrow(/error writing to stdin/);
    await expect(sandbox().commands.closeStdin(pid)).rejects.toThrow(/error closing stdin/);
    await handle.kill();
  });
});
