import { createHash, randomBytes } from 'node:crypto';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { type Frame, frame, frames } from '../support/connect-frames.ts';
import { FULL } from '../support/full.ts';
import {
  asUser,
  base64,
  describeRaw,
  errorOf,
  eventOf,
  type Json,
  outcomeOf,
  pidOf,
  RawSandbox,
} from '../support/raw.ts';

const P = 'process.Process';
const NO_SUCH_PID = 999_999;
const bash = (command: string, more: Json = {}) => ({ process: { cmd: '/bin/bash', args: ['-c', command] }, ...more });
const notFound = (what: string) => ({
  status: 404,
  body: { code: 'not_found', message: `process with ${what} not found` },
});

describeRaw('processes on the wire', (sandbox) => {
  const listed = async (pid: number) => {
    const { processes = [] } = (await sandbox().ask(`${P}/List`, {})) as { processes?: Json[] };
    return processes.find((process) => process['pid'] === pid);
  };
  const kill = (pid: number) => sandbox().ask(`${P}/SendSignal`, { process: { pid }, signal: 'SIGNAL_SIGKILL' });

  describe('Start', () => {
    it('runs any program, not only a shell', async () => {
      const all = await sandbox().stream(`${P}/Start`, {
        process: { cmd: 'printf', args: ['%s|', 'a b', '', '$HOME', 'ü'], envs: {} },
        stdin: false,
      });
      expect(outcomeOf(all)).toMatchObject({ stdout: 'a b||$HOME|ü|', end: { exited: true } });
    });

    it('tells every way to end', async () => {
      expect((await sandbox().run('exit 0')).end).toEqual({ exited: true, status: 'exit status 0' });
      expect((await sandbox().run('exit 5')).end).toEqual({
        exitCode: 5,
        exited: true,
        status: 'exit status 5',
        error: 'exit status 5',
      });
      expect((await sandbox().run('kill -KILL $$')).end).toEqual({
        exitCode: -1,
        status: 'signal: killed',
        error: 'signal: killed',
      });
      expect((await sandbox().run('kill -TERM $$')).end).toMatchObject({ status: 'signal: terminated' });
      expect((await sandbox().run('kill -HUP $$')).end).toMatchObject({ status: 'signal: hangup' });
    });

    it('keeps stdin open when nothing is said of it, closes it for false, opens it for true', async () => {
      const silent = await sandbox().start('cat');
      await sandbox().ask(`${P}/SendInput`, { process: { pid: silent }, input: { stdin: base64('x') } });
      await kill(silent);
      for (const stdin of [true, null]) {
        const pid = await sandbox().start('cat', { stdin });
        expect(
          (await sandbox().call(`${P}/SendInput`, { process: { pid }, input: { stdin: base64('x') } })).status,
        ).toBe(200);
        await kill(pid);
      }
      const closed = await sandbox().start('sleep 20', { stdin: false });
      expect(
        await sandbox().call(`${P}/SendInput`, { process: { pid: closed }, input: { stdin: base64('x') } }),
      ).toMatchObject({
        status: 500,
        body: { code: 'internal', message: 'error writing to stdin: stdin not enabled or closed' },
      });
      await kill(closed);
    });

    it('refuses what cannot be started', async () => {
      const empty = await sandbox().stream(`${P}/Start`, {});
      expect(errorOf(empty)).toMatchObject({ code: 'invalid_argument' });
      const nobody = await sandbox().stream(`${P}/Start`, bash('true'), asUser('nobody-here'));
      expect(errorOf(nobody)).toEqual({ code: 'unauthenticated', message: "invalid username: 'nobody-here'" });
      const nul = await sandbox().stream(`${P}/Start`, { process: { cmd: '/bin/echo', args: ['a\0b'] } });
      expect(errorOf(nul)?.['code']).toBe('invalid_argument');
    });

    it('tells of a program that is not there as a shell would', async () => {
      const all = await sandbox().stream(`${P}/Start`, { process: { cmd: '/no/such/program' }, stdin: false });
      const outcome = outcomeOf(all);
      if (errorOf(all)) expect(errorOf(all)).toMatchObject({ code: 'invalid_argument' });
      else expect(outcome.end).toMatchObject({ exitCode: 127 });
    });

    it('reaches the process by the user in Basic, whatever password is there', async () => {
      const authorization = `Basic ${Buffer.from('root:secret').toString('base64')}`;
      expect((await sandbox().run('id -un', { authorization })).stdout).toBe('root\n');
      expect((await sandbox().run('id -un', { authorization: 'Bearer whatever' })).stdout).toBe('user\n');
      expect((await sandbox().run('id -un')).stdout).toBe('user\n');
    });

    it('gives nothing of the service’s own environment', async () => {
      const { stdout } = await sandbox().run('env');
      const names = stdout
        .trim()
        .split('\n')
        .map((line) => line.split('=')[0])
        .filter((name) => !['PWD', 'SHLVL', '_', 'OLDPWD'].includes(name ?? ''));
      expect(names.sort()).toEqual([
        ...['E2B_SANDBOX', 'E2B_SANDBOX_ID', 'E2B_TEMPLATE_ID', 'HOME', 'LOGNAME', 'PATH', 'USER'],
      ]);
    });
  });

  describe('tags', () => {
    it('select a process for every call', async () => {
      const tag = 'my tag ü';
      const stream = await sandbox().open(`${P}/Start`, bash('cat', { tag, stdin: true }));
      const pid = pidOf(await stream.next());
      expect(await listed(pid)).toMatchObject({ tag, config: { cmd: '/bin/bash' } });
      const other = await sandbox().open(`${P}/Connect`, { process: { tag } });
      expect(pidOf(await other.next())).toBe(pid);
      await sandbox().ask(`${P}/SendInput`, { process: { tag }, input: { stdin: base64('by tag') } });
      expect(eventOf(await other.next())['data']).toEqual({ stdout: base64('by tag') });
      await sandbox().ask(`${P}/Update`, { process: { tag } });
      await sandbox().ask(`${P}/CloseStdin`, { process: { tag } });
      expect(outcomeOf(await other.rest()).end).toMatchObject({ exited: true });
      expect(outcomeOf(await stream.rest()).stdout).toBe('by tag');
    });

    it('that nobody bears are not found', async () => {
      const selector = { process: { tag: 'nobody' } };
      expect(await sandbox().call(`${P}/SendSignal`, { ...selector, signal: 'SIGNAL_SIGTERM' })).toMatchObject(
        notFound('tag nobody'),
      );
      expect(errorOf(await sandbox().stream(`${P}/Connect`, selector))).toEqual({
        code: 'not_found',
        message: 'process with tag nobody not found',
      });
    });
  });

  describe('selectors', () => {
    it.each([
      ['SendSignal', { signal: 'SIGNAL_SIGKILL' }],
      ['SendInput', { input: { stdin: 'eA==' } }],
      ['CloseStdin', {}],
      ['Update', { pty: { size: { cols: 1, rows: 1 } } }],
      ['Update', {}],
    ])('%s of a pid that is not there', async (rpc, message) => {
      expect(await sandbox().call(`${P}/${rpc}`, { process: { pid: NO_SUCH_PID }, ...message })).toMatchObject(
        notFound(`pid ${NO_SUCH_PID}`),
      );
      const nothing = await sandbox().call(`${P}/${rpc}`, message);
      expect(nothing).toMatchObject({ status: 400, body: { code: 'invalid_argument' } });
    });

    it('do not reach processes that were not started from outside', async () => {
      const pid = Number((await sandbox().run('setsid sleep 15 > /dev/null 2>&1 & echo $!')).stdout);
      expect(await sandbox().call(`${P}/SendSignal`, { process: { pid }, signal: 'SIGNAL_SIGKILL' })).toMatchObject(
        notFound(`pid ${pid}`),
      );
      expect(await sandbox().call(`${P}/SendSignal`, { process: { pid: 1 }, signal: 'SIGNAL_SIGKILL' })).toMatchObject(
        notFound('pid 1'),
      );
      expect(await listed(pid)).toBeUndefined();
    });
  });

  describe('SendSignal', () => {
    it('knows TERM and KILL, and says so of others', async () => {
      const pid = await sandbox().start("trap 'exit 9' TERM; while :; do sleep 0.05; done");
      await sleep(200);
      const stream = await sandbox().open(`${P}/Connect`, { process: { pid } });
      await stream.next();
      for (const signal of ['SIGNAL_UNSPECIFIED', 1, 2, undefined])
        expect(await sandbox().call(`${P}/SendSignal`, { process: { pid }, signal })).toMatchObject({
          status: 501,
          body: { code: 'unimplemented' },
        });
      await sandbox().ask(`${P}/SendSignal`, { process: { pid }, signal: 'SIGNAL_SIGTERM' });
      expect(outcomeOf(await stream.rest()).end).toMatchObject({ exitCode: 9, exited: true });
    });

    it('reaches the process alone, not its children', async () => {
      const stream = await sandbox().open(`${P}/Start`, bash('sleep 7.77 & wait'));
      const pid = pidOf(await stream.next());
      await sleep(300);
      await kill(pid);
      expect(outcomeOf(await stream.rest()).end).toMatchObject({ status: 'signal: killed' });
      expect((await sandbox().run('pgrep -fc "^sleep 7.77"')).stdout).toBe('1\n');
    });
  });

  describe('StreamInput', () => {
    /** A client stream whose messages are sent one by one. */
    function inputStream() {
      let push: (bytes: Uint8Array | undefined) => void = () => undefined;
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          push = (bytes) => (bytes ? controller.enqueue(bytes) : controller.close());
        },
      });
      const response = sandbox().fetch(`/${P}/StreamInput`, {
        method: 'POST',
        headers: { 'content-type': 'application/connect+json', 'connect-protocol-version': '1' },
        body,
        duplex: 'half',
      } as RequestInit & { headers: Record<string, string> });
      const answered = response.then((answer) => Array.fromAsync(frames(answer.body as AsyncIterable<Uint8Array>)));
      answered.catch(() => undefined);
      return {
        send: (message: Json) => push(frame(message)),
        finish: (): Promise<Frame[]> => {
          push(undefined);
          return answered;
        },
        answered,
      };
    }

    it('carries input as it comes, with signs of life in between', async () => {
      const stream = await sandbox().open(`${P}/Start`, bash('cat', { stdin: true }));
      const pid = pidOf(await stream.next());
      const input = inputStream();
      input.send({ start: { process: { pid } } });
      for (const text of ['one ', 'two ', 'three']) {
        input.send({ data: { input: { stdin: base64(text) } } });
        input.send({ keepalive: {} });
        expect(eventOf(await stream.next())['data']).toEqual({ stdout: base64(text) });
      }
      expect(await input.finish()).toEqual([
        { flags: 0, message: {} },
        { flags: 2, message: {} },
      ]);
      // The end of the stream is not the end of the input.
      await sandbox().ask(`${P}/SendInput`, { process: { pid }, input: { stdin: base64('more') } });
      expect(eventOf(await stream.next())['data']).toEqual({ stdout: base64('more') });
      await sandbox().ask(`${P}/CloseStdin`, { process: { pid } });
      expect(outcomeOf(await stream.rest()).end).toMatchObject({ exited: true });
    });

    it('carries keys to a terminal', async () => {
      const stream = await sandbox().open(`${P}/Start`, {
        ...bash('read -r line; echo "<$line>"'),
        pty: { size: { cols: 80, rows: 24 } },
      });
      const pid = pidOf(await stream.next());
      const input = inputStream();
      input.send({ start: { process: { pid } } });
      input.send({ data: { input: { pty: base64('typed\r') } } });
      expect(errorOf(await input.finish())).toBeUndefined();
      expect(outcomeOf(await stream.rest()).pty).toContain('<typed>');
    });

    it('moves ten megabytes in order', async () => {
      const stream = await sandbox().open(`${P}/Start`, bash('sha256sum', { stdin: true }));
      const pid = pidOf(await stream.next());
      const input = inputStream();
      const hash = createHash('sha256');
      input.send({ start: { process: { pid } } });
      for (let piece = 0; piece < 40; piece++) {
        const bytes = randomBytes(256 * 1024);
        hash.update(bytes);
        input.send({ data: { input: { stdin: bytes.toString('base64') } } });
      }
      expect(errorOf(await input.finish())).toBeUndefined();
      await sandbox().ask(`${P}/CloseStdin`, { process: { pid } });
      expect(outcomeOf(await stream.rest()).stdout).toBe(`${hash.digest('hex')}  -\n`);
    });

    it('must begin with a start, for a process that is there', async () => {
      const early = inputStream();
      early.send({ data: { input: { stdin: 'eA==' } } });
      expect(errorOf(await early.finish())).toMatchObject({ code: 'invalid_argument' });
      const missing = inputStream();
      missing.send({ start: { process: { pid: NO_SUCH_PID } } });
      missing.send({ data: { input: { stdin: 'eA==' } } });
      expect(errorOf(await missing.finish())).toEqual({
        code: 'not_found',
        message: `process with pid ${NO_SUCH_PID} not found`,
      });
    });
  });

  describe('terminals', () => {
    it('take Update for a new size; a process without one refuses', async () => {
      const stream = await sandbox().open(`${P}/Start`, {
        ...bash('stty size; read; stty size'),
        pty: { size: { cols: 81, rows: 25 } },
      });
      const pid = pidOf(await stream.next());
      expect(Buffer.from(String(eventOf(await stream.next())['data']?.['pty']), 'base64').toString()).toBe('25 81\r\n');
      await sandbox().ask(`${P}/Update`, { process: { pid }, pty: { size: { cols: 120, rows: 40 } } });
      await sandbox().ask(`${P}/SendInput`, { process: { pid }, input: { pty: base64('\r') } });
      const outcome = outcomeOf(await stream.rest());
      expect(outcome.pty).toContain('40 120');
      expect(outcome.end).toMatchObject({ exited: true });
      const plain = await sandbox().start('sleep 20');
      expect(
        await sandbox().call(`${P}/Update`, { process: { pid: plain }, pty: { size: { cols: 1, rows: 1 } } }),
      ).toMatchObject({
        status: 500,
        body: { code: 'internal', message: 'error resizing tty: tty not assigned to process' },
      });
      expect(await sandbox().call(`${P}/SendInput`, { process: { pid: plain }, input: { pty: 'eA==' } })).toMatchObject(
        {
          body: { code: 'internal', message: expect.stringMatching(/^error writing to tty: /) },
        },
      );
      await kill(plain);
    });

    it('refuse what is for pipes', async () => {
      const pid = await sandbox().start('sleep 20', { pty: { size: { cols: 80, rows: 24 } } });
      expect(await sandbox().call(`${P}/SendInput`, { process: { pid }, input: { stdin: 'eA==' } })).toMatchObject({
        status: 500,
        body: { code: 'internal', message: expect.stringMatching(/^error writing to stdin: /) },
      });
      expect(await sandbox().call(`${P}/CloseStdin`, { process: { pid } })).toMatchObject({
        status: 500,
        body: { code: 'unknown', message: expect.stringMatching(/^error closing stdin: /) },
      });
      expect(await sandbox().call(`${P}/SendInput`, { process: { pid }, input: {} })).toMatchObject({ status: 501 });
      await kill(pid);
    });
  });

  describe('deadlines', () => {
    it('kill the process and end the stream with deadline_exceeded', async () => {
      const begun = Date.now();
      const all = await sandbox().stream(`${P}/Start`, bash('echo before; exec sleep 30', { stdin: false }), {
        'connect-timeout-ms': '600',
      });
      expect(Date.now() - begun).toBeGreaterThanOrEqual(590);
      expect(Date.now() - begun).toBeLessThan(3000);
      expect(outcomeOf(all)).toMatchObject({ stdout: 'before\n', end: {} });
      expect(errorOf(all)).toMatchObject({ code: 'deadline_exceeded' });
      expect(await listed(pidOf(all[0] as Frame))).toBeUndefined();
    });

    it('hold for the process though its client left, and not for another’s Connect', async () => {
      const pid = await sandbox().start('exec sleep 30', {}, { 'connect-timeout-ms': '1500' });
      const brief = await sandbox().stream(`${P}/Connect`, { process: { pid } }, { 'connect-timeout-ms': '300' });
      expect(errorOf(brief)).toMatchObject({ code: 'deadline_exceeded' });
      expect(await listed(pid)).toBeDefined();
      await expect.poll(() => listed(pid), { timeout: 5000 }).toBeUndefined();
    });

    it('of 0 are over before they begin, of ten digits are as good as none', async () => {
      expect(errorOf(await sandbox().stream(`${P}/Start`, bash('true'), { 'connect-timeout-ms': '0' }))).toMatchObject({
        code: 'deadline_exceeded',
      });
      const all = await sandbox().stream(`${P}/Start`, bash('sleep 0.3; echo done', { stdin: false }), {
        'connect-timeout-ms': '9999999999',
      });
      expect(outcomeOf(all).stdout).toBe('done\n');
    });
  });

  describe('keepalive', () => {
    /** When each event of a stream came, in milliseconds since it began. */
    async function timeline(headers: Record<string, string>, command: string): Promise<[string, number][]> {
      const begun = Date.now();
      const stream = await sandbox().open(`${P}/Start`, bash(command, { stdin: false }), headers);
      const seen: [string, number][] = [];
      for (;;) {
        const next = await stream.next();
        const kind = Object.keys(eventOf(next))[0] ?? 'close';
        seen.push([kind, Date.now() - begun]);
        if (next.flags === 2) return seen;
      }
    }

    it('comes when nothing was said for the interval, counted from the last word', async () => {
      const seen = await timeline({ 'keepalive-ping-interval': '1' }, 'sleep 0.6; echo x; sleep 2.5');
      expect(seen.map(([kind]) => kind)).toEqual(['start', 'data', 'keepalive', 'keepalive', 'end', 'close']);
      const [, data, first, second] = seen.map(([, at]) => at) as [number, number, number, number];
      for (const gap of [first - data, second - first]) {
        expect(gap).toBeGreaterThan(900);
        expect(gap).toBeLessThan(1500);
      }
    });

    it.each(['', 'x', '0', '-1', '1.5'])('interval %j means the default', async (interval) => {
      const seen = await timeline({ 'keepalive-ping-interval': interval }, 'sleep 1.3');
      expect(seen.map(([kind]) => kind)).toEqual(['start', 'end', 'close']);
    });

    it('comes on Connect and on a watch too', async () => {
      const pid = await sandbox().start('exec sleep 20');
      for (const [rpc, message] of [
        [`${P}/Connect`, { process: { pid } }],
        ['filesystem.Filesystem/WatchDir', { path: '/opt' }],
      ] as const) {
        const begun = Date.now();
        const stream = await sandbox().open(rpc, message, { 'keepalive-ping-interval': '1' });
        await stream.next();
        const second = await stream.next();
        expect(JSON.stringify(second.message)).toContain('"keepalive":{}');
        expect(Date.now() - begun).toBeGreaterThan(900);
        expect(Date.now() - begun).toBeLessThan(2500);
        stream.leave();
      }
      await kill(pid);
    });
  });

  describe('Connect', () => {
    it('replays nothing of what went before', async () => {
      const pid = await sandbox().start('echo unheard; sleep 1; echo heard');
      await sleep(400);
      expect(outcomeOf(await sandbox().stream(`${P}/Connect`, { process: { pid } })).stdout).toBe('heard\n');
    });

    it('replays what nobody heard when it is asked to', async () => {
      const pid = await sandbox().start('echo unheard; sleep 1; echo heard');
      await sleep(400);
      const all = await sandbox().stream(`${P}/Connect`, { process: { pid } }, { 'x-sandbar-replay': 'true' });
      expect(outcomeOf(all).stdout).toBe('unheard\nheard\n');
    });

    it('tells start and end of one that is over', async () => {
      const pid = await sandbox().start('exit 6');
      await sleep(300);
      const all = await sandbox().stream(`${P}/Connect`, { process: { pid } });
      expect(all.map((one) => Object.keys(eventOf(one))[0])).toEqual(['start', 'end', undefined]);
      expect(outcomeOf(all).end).toMatchObject({ exitCode: 6, error: 'exit status 6' });
    });

    it.runIf(FULL)('forgets one that is over after thirty seconds', async () => {
      const pid = await sandbox().start('exit 6');
      await sleep(27_000);
      expect(errorOf(await sandbox().stream(`${P}/Connect`, { process: { pid } }))).toBeUndefined();
      await sleep(6_000);
      expect(errorOf(await sandbox().stream(`${P}/Connect`, { process: { pid } }))).toMatchObject({
        code: 'not_found',
      });
    });

    it('a client that cuts the connection in the middle of output leaves the process running', async () => {
      const pid = await sandbox().start(
        'for i in $(seq 1 40); do head -c 100000 /dev/zero; sleep 0.05; done; touch /tmp/whole',
      );
      const socket = net.connect(sandbox().service.port, '127.0.0.1');
      const body = frame({ process: { pid } });
      const headers = Object.entries(sandbox().headers).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(
        `POST /${P}/Connect HTTP/1.1\r\nhost: localhost\r\n${headers.join('')}connect-protocol-version: 1\r\n` +
          `content-type: application/connect+json\r\ncontent-length: ${body.length}\r\n\r\n`,
      );
      socket.write(body);
      await new Promise((resolve) => socket.once('data', resolve));
      socket.resetAndDestroy();
      await expect
        .poll(async () => (await sandbox().run('test -e /tmp/whole && echo yes')).stdout, { timeout: 20_000 })
        .toBe('yes\n');
      expect(await listed(pid)).toBeUndefined();
    });
  });

  describe('chunks', () => {
    it('are of a moderate size, and whole', async () => {
      const all = await sandbox().stream(
        `${P}/Start`,
        bash('head -c 3000000 /dev/zero; head -c 100000 /dev/zero >&2', { stdin: false }),
      );
      const sizes = all.flatMap((one) => {
        const data = eventOf(one)['data'];
        return data ? [Buffer.from(String(Object.values(data)[0]), 'base64').length] : [];
      });
      expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(3_100_000);
      expect(Math.max(...sizes)).toBeLessThanOrEqual(256 * 1024);
    });

    it('carry bytes that are no text', async () => {
      const all = await sandbox().stream(`${P}/Start`, {
        process: { cmd: 'python3', args: ['-c', 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 100)'] },
        stdin: false,
      });
      const bytes = Buffer.concat(
        all.flatMap((one) => {
          const data = eventOf(one)['data']?.['stdout'];
          return typeof data === 'string' ? [Buffer.from(data, 'base64')] : [];
        }),
      );
      expect(bytes.equals(Buffer.concat(Array(100).fill(Buffer.from(Array.from({ length: 256 }, (_, i) => i)))))).toBe(
        true,
      );
    });
  });

  describe('List', () => {
    it('shows what was asked for, and nothing else', async () => {
      const before = ((await sandbox().ask(`${P}/List`, {}))['processes'] ?? []) as Json[];
      const pid = await sandbox().start('exec sleep 20', { tag: 't' });
      expect(await listed(pid)).toEqual({
        pid,
        tag: 't',
        config: { cmd: '/bin/bash', args: ['-c', 'exec sleep 20'] },
      });
      await kill(pid);
      await expect
        .poll(async () => ((await sandbox().ask(`${P}/List`, {}))['processes'] ?? []) as Json[])
        .toHaveLength(before.length);
      expect(await sandbox().call(`${P}/List`, {}, asUser('nobody-here'))).toMatchObject({
        status: 401,
        body: { code: 'unauthenticated' },
      });
    });
  });

  it('a stream ends at once, cut off, when the sandbox is killed', async () => {
    const { service } = sandbox();
    const doomed = await RawSandbox.create(service);
    const stream = await doomed.open(`${P}/Start`, bash('sleep 60'));
    await stream.next();
    const rest = stream.rest().then(
      () => 'ended in good order',
      () => 'cut off',
    );
    expect((await service.fetch(`/sandboxes/${doomed.id}`, { method: 'DELETE' })).status).toBe(204);
    expect(await rest).toBe('cut off');
    const after = await doomed.fetch('/health');
    expect(after.status).toBe(502);
    expect(await after.json()).toEqual({ sandboxId: doomed.id, message: 'The sandbox was not found', code: 502 });
  });
});
