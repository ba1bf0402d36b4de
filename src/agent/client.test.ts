import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { LocalAgent } from '../../tests/support/local-agent.ts';
import { AgentClient, newOperationId } from './client.ts';
import type { OutputBatch, StartOptions } from './contract.ts';
import { AgentError } from './errors.ts';

/** Machines that run tests are busy: what must come is waited for long enough. */
const eventually = <T>(seen: () => T) => expect.poll(seen, { timeout: 10_000 });

/** A wire to the agent that can be cut, as a checkpoint cuts every connection. */
class Wire {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  opened = 0;

  constructor(target: number) {
    this.#server = createServer({ allowHalfOpen: true }, (near) => {
      this.opened++;
      const far = connect({ port: target, host: '127.0.0.1', allowHalfOpen: true });
      for (const socket of [near, far]) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => {
          this.#sockets.delete(socket);
          near.destroy();
          far.destroy();
        });
      }
      near.pipe(far).pipe(near);
    });
  }

  async listen(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  get open(): number {
    return this.#sockets.size / 2;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  close(): void {
    this.cut();
    this.#server.close();
  }
}

describe('the agent client', { timeout: 30_000 }, () => {
  let agent: LocalAgent;
  let wire: Wire;
  let client: AgentClient;
  let dir: string;

  beforeAll(async () => {
    agent = await LocalAgent.start();
    dir = mkdtempSync(path.join(tmpdir(), 'sandbar-agent-'));
    await agent.client.configure({ defaultUser: 'root', defaultWorkdir: dir });
  });
  afterAll(async () => {
    await agent.stop();
    rmSync(dir, { recursive: true });
  });
  beforeEach(async () => {
    wire = new Wire(agent.port);
    client = new AgentClient({ host: '127.0.0.1', port: await wire.listen(), secret: agent.secret });
  });
  afterEach(() => {
    client.close('the test is over');
    wire.close();
  });

  const command = (text: string, more: Partial<StartOptions> = {}): StartOptions => ({
    user: '',
    cmd: '/bin/bash',
    args: ['-c', text],
    env: {},
    cwd: '',
    stdin: false,
    operationId: newOperationId(),
    ...more,
  });

  /** All output of a process and its end. */
  async function outputOf(pid: number, subscriber: number, onBatch: () => void = () => undefined) {
    const hash = createHash('sha256');
    let offset = 0;
    let text = '';
    for (;;) {
      const batch = await client.readOutput({
        process: { pid },
        subscriber,
        offset,
        length: 0,
        waitMs: 10_000,
        replay: false,
      });
      expect(batch.offset).toBe(offset);
      for (const { data } of batch.chunks) {
        hash.update(data);
        if (offset < 10_000) text += data.toString();
      }
      offset = batch.nextOffset;
      if (batch.end) return { bytes: offset, text, digest: hash.digest('hex'), end: batch.end };
      onBatch();
    }
  }

  test('calls one after the other share a connection; many at once have one each', async () => {
    for (let i = 0; i < 10; i++) await client.ping();
    expect(wire.opened).toBe(1);
    await Promise.all(Array.from({ length: 20 }, () => client.stat({ user: '', path: '/' })));
    expect(wire.opened).toBeLessThanOrEqual(20);
    await eventually(() => wire.open).toBeLessThanOrEqual(6);
  });

  test('an error of the agent has its code, number and path', async () => {
    const error = await client.stat({ user: '', path: '/no/such' }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(AgentError);
    expect(error).toMatchObject({
      code: 'NOT_FOUND',
      errno: 2,
      path: '/no/such',
      message: 'no such file or directory',
    });
  });

  test('a wrong secret and a dead port are told', async () => {
    const wrong = new AgentClient({ host: '127.0.0.1', port: agent.port, secret: randomBytes(32) });
    await expect(wrong.ping()).rejects.toThrow(/cannot reach the agent/);
    wrong.close('');
    const nobody = new AgentClient({ host: '127.0.0.1', port: 1, secret: agent.secret });
    await expect(nobody.ping()).rejects.toThrow(/ECONNREFUSED/);
    nobody.close('');
  });

  test('a connection that died unnoticed is replaced', async () => {
    for (let i = 0; i < 20; i++) {
      await client.ping();
      wire.cut();
      expect((await client.stat({ user: '', path: '/' })).path).toBe('/');
    }
  });

  test('output is neither lost nor repeated however often the wire is cut', async () => {
    const lines = Array.from({ length: 1_000_000 }, (_, index) => `${index + 1}\n`).join('');
    const cutting = setInterval(() => wire.cut(), 15);
    try {
      const pid = await agent.client.start(command('seq 1000000; exit 5', { subscriber: 7 }));
      const seen = await outputOf(pid, 7);
      expect(seen.bytes).toBe(lines.length);
      expect(seen.digest).toBe(createHash('sha256').update(lines).digest('hex'));
      expect(seen.end.exitCode).toBe(5);
    } finally {
      clearInterval(cutting);
    }
  });

  test('a file is read whole however often the wire is cut', async () => {
    const data = randomBytes(8 * 1024 * 1024 + 3);
    writeFileSync(path.join(dir, 'data'), data);
    const { handle, size } = await client.openRead({ user: '', path: path.join(dir, 'data') });
    const pieces: Buffer[] = [];
    for (let at = 0; at < size; at += 4 * 1024 * 1024) {
      let count = 0;
      for await (const piece of client.readAt(handle, at, 4 * 1024 * 1024)) {
        pieces.push(piece);
        if (++count % 10 === 0) wire.cut();
      }
    }
    expect(Buffer.concat(pieces).equals(data)).toBe(true);
    await client.closeFile(handle);
    await client.closeFile(handle);
  });

  test('input is written exactly once however often the wire is cut', async () => {
    const data = randomBytes(700_000);
    const target = path.join(dir, 'input');
    const slow = `while dd bs=20000 count=1 iflag=fullblock status=none; do sleep 0.01; [ -e ${target}.stop ] && break; done > ${target}`;
    const pid = await client.start(command(`cat | (${slow})`, { stdin: true }));
    const cutting = setInterval(() => wire.cut(), 20);
    try {
      await client.writeInput({ pid }, 'stdin', data);
    } finally {
      clearInterval(cutting);
    }
    await delay(10);
    await client.closeStdin({ pid });
    await eventually(() => readFileSync(target).length).toBe(data.length);
    expect(readFileSync(target).equals(data)).toBe(true);
    writeFileSync(`${target}.stop`, '');
    await client.signal({ pid }, 9).catch(() => undefined);
  });

  test('a start that is asked for again gives the same process', async () => {
    const options = command('sleep 5');
    const pid = await client.start(options);
    wire.cut();
    expect(await client.start(options)).toBe(pid);
    await client.signal({ pid }, 9);
  });

  describe('what is configured first', () => {
    const colourOf = async (subscriber: number) => {
      const pid = await client.start(command('echo -n $COLOUR', { subscriber }));
      return (await outputOf(pid, subscriber)).text;
    };

    test('is there for whatever is asked, though nobody waited for it', async () => {
      client.configureFirst({ env: { COLOUR: 'green' }, defaultUser: 'root', defaultWorkdir: dir });
      const colours = await Promise.all([colourOf(31), colourOf(32)]);
      expect(colours).toEqual(['green', 'green']);
    });

    test('is tried again by the next request after it failed', async () => {
      client.configureFirst({ env: { COLOUR: 'blue' }, defaultUser: 'root', defaultWorkdir: dir });
      client.retarget('127.0.0.1', agent.secret, 1);
      await expect(client.ping()).rejects.toThrow();
      client.retarget('127.0.0.1', agent.secret, agent.port);
      expect(await colourOf(33)).toBe('blue');
    });

    test('does not keep a request that is given up', async () => {
      client.configureFirst({ env: { COLOUR: 'red' } });
      await client.quiesce();
      await expect(client.ping(AbortSignal.timeout(50))).rejects.toThrow();
      client.reopen();
      expect(await colourOf(34)).toBe('red');
    });
  });

  describe('a start with its first read', () => {
    const read = { length: 0, waitMs: 10_000 };
    const run = (text: string, subscriber: number, signal?: AbortSignal) =>
      client.startAndRead({ ...command(text), subscriber }, read, signal);
    const textOf = ({ chunks }: OutputBatch) => chunks.map(({ data }) => data.toString()).join('');

    test('goes on one connection, which is free again afterwards', async () => {
      for (const subscriber of [21, 22]) {
        const { pid, output } = await run('echo $$', subscriber);
        expect(textOf(await output)).toBe(`${pid}\n`);
      }
      expect(wire.opened).toBe(1);
    });

    test('loses nothing when the wire is cut, or a checkpoint takes the read away', async () => {
      const { output } = await run('sleep 0.3; echo cut', 23);
      wire.cut();
      expect(textOf(await output)).toBe('cut\n');
      const held = await run('sleep 0.3; echo held', 24);
      await client.quiesce();
      await eventually(() => wire.open).toBe(0);
      client.reopen();
      expect(textOf(await held.output)).toBe('held\n');
    });

    test('fails with the start', async () => {
      const options = { ...command('true', { cwd: '/nowhere/at/all' }), subscriber: 25 };
      await expect(client.startAndRead(options, read)).rejects.toMatchObject({ code: 'CWD' });
      await client.ping();
    });

    test('is left by its reader, whose leaving does not undo the start', async () => {
      const reader = new AbortController();
      const { pid, output } = await run('sleep 30', 26, reader.signal);
      reader.abort(new Error('left'));
      await expect(output).rejects.toThrow('left');
      expect((await client.processes()).map((each) => each.pid)).toContain(pid);
      await client.signal({ pid }, 9);
      // One that left before is no reason not to start either.
      const late = await run('sleep 30', 27, reader.signal);
      await expect(late.output).rejects.toThrow('left');
      await client.signal({ pid: late.pid }, 9);
    });
  });

  test('before a checkpoint running requests end, waiting ones are put aside, new ones wait; afterwards all go on', async () => {
    const pid = await client.start(command('sleep 0.6; echo woken', { subscriber: 3 }));
    const waiting = outputOf(pid, 3);
    await delay(50);
    const running = client.list({ user: '', path: '/usr', depth: 3 });
    await delay(5);
    await client.quiesce();
    await running;
    await eventually(() => wire.open).toBe(0);
    let answered = false;
    const held = client.ping().then(() => {
      answered = true;
    });
    await delay(100);
    expect(answered).toBe(false);
    expect(wire.open).toBe(0);
    client.reopen();
    await held;
    expect((await waiting).text).toBe('woken\n');
  });

  test('a download that nobody reads does not hold a checkpoint up, and goes on after it', async () => {
    const data = randomBytes(4 * 1024 * 1024);
    writeFileSync(path.join(dir, 'slow'), data);
    const { handle } = await client.openRead({ user: '', path: path.join(dir, 'slow') });
    const reading = client.readAt(handle, 0, data.length);
    const pieces = [(await reading.next()).value as Buffer];
    const begun = performance.now();
    await client.quiesce();
    expect(performance.now() - begun).toBeLessThan(1000);
    client.reopen();
    for await (const piece of reading) pieces.push(piece);
    expect(Buffer.concat(pieces).equals(data)).toBe(true);
  });

  test('input to a process that does not read does not hold a checkpoint up', async () => {
    const pid = await client.start(command('sleep 1; wc -c', { stdin: true, subscriber: 4 }));
    const writing = client.writeInput({ pid }, 'stdin', Buffer.alloc(300_000));
    await delay(100);
    await client.quiesce();
    client.reopen();
    await writing;
    await client.closeStdin({ pid });
    expect((await outputOf(pid, 4)).text.trim()).toBe('300000');
  });

  test('a call that is aborted ends at once', async () => {
    const pid = await client.start(command('sleep 5', { subscriber: 9 }));
    const leaving = new AbortController();
    const read = client.readOutput(
      { process: { pid }, subscriber: 9, offset: 0, length: 0, waitMs: 60_000, replay: false },
      leaving.signal,
    );
    setTimeout(() => leaving.abort(new Error('left')), 50);
    await expect(read).rejects.toThrow('left');
    await client.signal({ pid }, 9);
  });

  test('closing fails what waits, what is held back and what comes later', async () => {
    const pid = await client.start(command('sleep 5', { subscriber: 11 }));
    const position = { process: { pid }, subscriber: 11, offset: 0, length: 0, waitMs: 60_000, replay: false };
    const waiting = expect(client.readOutput(position)).rejects.toThrow('gone');
    await delay(20);
    await client.quiesce();
    const held = expect(client.ping()).rejects.toThrow('gone');
    client.close('gone');
    await Promise.all([waiting, held]);
    await expect(client.ping()).rejects.toThrow('gone');
    await agent.client.signal({ pid }, 9);
  });

  test('a tunnel carries bytes both ways and passes half-closes on', async () => {
    const echo = createServer({ allowHalfOpen: true }, (socket) => {
      socket.write('welcome ');
      const chunks: Buffer[] = [];
      socket.on('data', (chunk) => chunks.push(chunk));
      socket.on('end', () => socket.end(Buffer.concat(chunks)));
    });
    echo.listen(0, '127.0.0.1');
    await once(echo, 'listening');
    const tunnel = await client.dial((echo.address() as AddressInfo).port);
    await delay(50);
    const data = randomBytes(500_000);
    tunnel.end(data);
    const chunks: Buffer[] = [];
    for await (const chunk of tunnel) chunks.push(chunk);
    expect(Buffer.concat(chunks).equals(Buffer.concat([Buffer.from('welcome '), data]))).toBe(true);
    echo.close();
    await expect(client.dial(1)).rejects.toMatchObject({ code: 'REFUSED', kind: 'bad_gateway' });
  });

  test('another place, another secret', async () => {
    await client.ping();
    client.retarget('127.0.0.1', randomBytes(32));
    await expect(client.ping()).rejects.toThrow(/cannot reach the agent/);
    client.retarget('127.0.0.1', agent.secret);
    await client.ping();
  });
});
