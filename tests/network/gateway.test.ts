import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http, { type IncomingMessage } from 'node:http';
import http2 from 'node:http2';
import { connect } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox, type SandboxOpts } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FULL, times } from '../support/full.ts';
import { describeOnRuntimes, type TestService } from '../support/service.ts';

const SERVER = readFileSync(path.join(import.meta.dirname, 'guest-server.mjs'), 'utf8');
const MB = 1024 * 1024;

describeOnRuntimes('the gateway', (service) => {
  let sandbox: Sandbox;
  beforeAll(async () => {
    sandbox = await serving(service());
  });
  afterAll(async () => {
    await sandbox?.kill();
  });

  const ask = (port: number, pathAndQuery: string, init: RequestInit = {}) =>
    service().fetchInside(sandbox.sandboxId, pathAndQuery, init, port);

  /** Median of some requests one after the other, ms. */
  const latency = async () => {
    const times: number[] = [];
    for (let index = 0; index < 50; index++) {
      const started = performance.now();
      await (await ask(3000, '/')).text();
      times.push(performance.now() - started);
    }
    return times.sort((a, b) => a - b)[25] ?? 0;
  };

  it('routes by host name, also to a port that listens on loopback only', async () => {
    for (const port of [3000, 3004]) {
      const res = await byHost(service(), sandbox, port, '/a?b=c', { 'X-Forwarded-For': '1.2.3.4', 'X-Kept': 'yes' });
      const { url, headers } = JSON.parse(await textOf(res)) as { url: string; headers: Record<string, string> };
      expect(url).toBe('/a?b=c');
      expect(headers).toMatchObject({ host: `${port}-${sandbox.sandboxId}.${service().domain}`, 'x-kept': 'yes' });
      expect(headers).not.toHaveProperty('x-forwarded-for');
    }
  });

  it('passes WebSockets', async () => {
    const socket = await openSocket(service(), sandbox);
    const received: string[] = [];
    socket.onmessage = (event) => void received.push(String(event.data));
    const sent = Array.from({ length: 200 }, (_, index) => `${index} ${'x'.repeat(index * 100)}`);
    for (const text of sent) socket.send(text);
    await expect.poll(() => received.length, { timeout: 10_000 }).toBe(sent.length);
    expect(received).toEqual(sent);
    const closed = once(socket, 'close');
    socket.close();
    await closed;
  });

  it('passes server-sent events as they come', async () => {
    const res = await ask(3000, '/events');
    const lags: number[] = [];
    let text = '';
    for await (const chunk of res.body ?? []) {
      text += Buffer.from(chunk).toString();
      const line = /data: (\d+) (\d+)\n\n$/.exec(text);
      if (line !== null) lags.push(Date.now() - Number(line[1]));
      if (lags.length >= 50) break;
    }
    const counts = [...text.matchAll(/data: \d+ (\d+)/g)].map((match) => Number(match[1]));
    expect(counts).toEqual(counts.map((_, index) => index));
    expect(lags.sort((a, b) => a - b)[25]).toBeLessThan(250);
  });

  it.each([
    ['clear text', 3001, {}],
    ['TLS to the sandbox', 3003, { network: { httpsPorts: [3002, 3003] } }],
  ])('passes gRPC, %s, both ways at once and with trailers', async (_kind, port, options) => {
    const other = Object.keys(options).length > 0 ? await serving(service(), options) : sandbox;
    const session = http2.connect(service().url);
    const stream = session.request({
      ':method': 'POST',
      ':path': '/pkg.Service/Echo',
      'e2b-sandbox-id': other.sandboxId,
      'e2b-sandbox-port': String(port),
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    const trailers = once(stream, 'trailers');
    for (let index = 0; index < 5; index++) {
      stream.write(`message ${index}`);
      const [chunk] = await once(stream, 'data');
      expect(String(chunk)).toBe(`message ${index}`);
    }
    stream.end();
    expect((await trailers)[0]).toMatchObject({ 'grpc-status': '0', 'grpc-message': 'fine' });
    session.close();
    if (other === sandbox) return;
    const plain = await service().fetchInside(other.sandboxId, '/over-tls', {}, 3002);
    expect(await plain.json()).toMatchObject({ url: '/over-tls' });
    await other.kill();
  });

  it('lets private traffic in by its token alone, and shows the host that is asked for', async () => {
    const other = await serving(service(), {
      // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text users write
      network: { allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}' },
    });
    const token = other.trafficAccessToken ?? '';
    const get = (headers: Record<string, string>) => service().fetchInside(other.sandboxId, '/', { headers }, 3000);
    const message = 'Sandbox is secured with traffic access token. ';
    expect(await (await get({})).json()).toEqual({
      sandboxId: other.sandboxId,
      message: `${message}Token header 'e2b-traffic-access-token' is missing`,
      code: 403,
    });
    expect(await (await get({ 'e2b-traffic-access-token': 'wrong' })).json()).toMatchObject({
      message: `${message}Provided token in header 'e2b-traffic-access-token' is invalid`,
    });
    const { headers } = (await (await get({ 'e2b-traffic-access-token': token })).json()) as {
      headers: Record<string, string>;
    };
    expect(headers['host']).toBe('localhost:3000');
    expect(headers['x-forwarded-host']).toBe(`127.0.0.1:${service().port}`);
    expect(headers).not.toHaveProperty('e2b-traffic-access-token');
    expect((await other.commands.run('echo the agent needs no token')).exitCode).toBe(0);
    await other.kill();
  });

  it('answers what it cannot pass on in the form that the asker reads', async () => {
    const closed = await ask(4999, '/');
    expect(closed.status).toBe(502);
    expect(await closed.json()).toEqual({
      sandboxId: sandbox.sandboxId,
      message: 'The sandbox is running but port is not open',
      port: 4999,
      code: 502,
    });
    const browser = { 'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64) Chrome/120', Accept: 'text/html' };
    const page = await byHost(service(), sandbox, 4999, '/', browser);
    expect(page.statusCode).toBe(502);
    expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(await textOf(page)).toContain('The sandbox is running but port is not open');
    const gone = await service().fetchInside('inosuchsandbox0000000', '/', {}, 3000);
    expect(await gone.json()).toMatchObject({ message: 'The sandbox was not found', code: 502 });
  });

  it(`moves ${times(64, 1024)} MB each way whole`, async () => {
    const size = times(64, 1024) * MB;
    const down = await ask(3000, `/bytes?n=${size}`);
    let received = 0;
    let next = 0;
    let rest: Buffer = Buffer.alloc(0);
    for await (const chunk of down.body ?? []) {
      received += chunk.length;
      rest = rest.length > 0 ? Buffer.concat([rest, chunk]) : Buffer.from(chunk);
      for (; rest.length >= 64 * 1024; rest = rest.subarray(64 * 1024))
        if (rest.readUInt32BE(0) !== next++) throw new Error(`block ${next - 1} is missing`);
    }
    expect(received).toBe(size);
    expect(next).toBe(size / (64 * 1024));

    const hash = createHash('sha256');
    const block = Buffer.alloc(256 * 1024);
    const up = await ask(3000, '/sink', {
      method: 'POST',
      duplex: 'half',
      body: (async function* () {
        for (let index = 0; index < size / block.length; index++) {
          block.writeUInt32BE(index, 0);
          hash.update(block);
          yield Buffer.from(block);
        }
      })() as never,
    } as RequestInit);
    expect(await up.json()).toEqual({ count: size, hash: hash.digest('hex') });
  });

  it('serves 500 connections to one sandbox at once', async () => {
    const agent = new http.Agent({ maxSockets: 600 });
    const one = async (index: number) => {
      const res = await byHost(service(), sandbox, 3000, `/wait?ms=1500&id=${index}`, {}, agent);
      return Number(await textOf(res));
    };
    const answers = await Promise.all(Array.from({ length: 500 }, (_, index) => one(index)));
    expect(answers).toEqual(answers.map((_, index) => index));
    agent.destroy();

    const sockets = await Promise.all(Array.from({ length: times(100, 500) }, () => openSocket(service(), sandbox)));
    const echoed = await Promise.all(
      sockets.map(async (socket, index) => {
        const answer = once(socket, 'message') as Promise<[MessageEvent]>;
        socket.send(`number ${index}`);
        return (await answer)[0].data;
      }),
    );
    expect(echoed).toEqual(echoed.map((_, index) => `number ${index}`));
    for (const socket of sockets) socket.close();
  });

  it('refuses one connection too many, and lets the next in when one has gone', async () => {
    const sockets = await Promise.all(Array.from({ length: 1024 }, () => openSocket(service(), sandbox)));
    const refused = await ask(3000, '/');
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({
      message: 'The sandbox has too many concurrent incoming connections (limit: 1024)',
    });
    for (const socket of sockets) socket.close();
    await expect.poll(async () => (await ask(3000, '/')).status, { timeout: 10_000 }).toBe(200);
  });

  it('holds little in memory for readers that do not read, and they slow nobody else', async () => {
    const alone = await latency();
    const before = memoryOf(service());
    const slow = await Promise.all(
      Array.from({ length: 60 }, async () => {
        const socket = connect(service().port, '127.0.0.1');
        await once(socket, 'connect');
        const host = `3000-${sandbox.sandboxId}.${service().domain}`;
        socket.pause();
        socket.write(`GET /bytes?n=${200 * MB} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
        return socket;
      }),
    );
    await sleep(2000);
    expect(memoryOf(service()) - before).toBeLessThan(150 * MB);
    expect(await latency()).toBeLessThan(3 * alone + 20);
    for (const socket of slow) socket.destroy();
  });

  it('breaks off what is under way when the sandbox is killed', async () => {
    const other = await serving(service());
    const res = await service().fetchInside(other.sandboxId, '/events', {}, 3000);
    const socket = await openSocket(service(), other);
    const closed = once(socket, 'close');
    const reading = (async () => {
      for await (const _ of res.body ?? []) {
        // Until it breaks.
      }
    })();
    const broken = expect(reading).rejects.toThrow();
    await other.kill();
    await broken;
    await closed;
  });
});

describe('many sandboxes', () => {
  describeOnRuntimes('the gateway', (service) => {
    const [count, each] = FULL ? [20, 50] : [4, 50];

    it(`serves ${each} connections to each of ${count} sandboxes at once`, async () => {
      const sandboxes: Sandbox[] = [];
      for (let made = 0; made < count; made += 4)
        sandboxes.push(
          ...(await Promise.all(Array.from({ length: Math.min(4, count - made) }, () => serving(service())))),
        );
      const agent = new http.Agent({ maxSockets: count * each });
      const answers = await Promise.all(
        sandboxes.flatMap((sandbox, which) =>
          Array.from({ length: each }, async (_, index) => {
            const res = await byHost(service(), sandbox, 3000, `/wait?ms=1000&id=${which}-${index}`, {}, agent);
            return (await textOf(res)) === `${which}-${index}`;
          }),
        ),
      );
      expect(answers.filter((right) => !right)).toEqual([]);
      agent.destroy();
      await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
    });
  });
});

/** A sandbox with the server in it, listening. */
async function serving(service: TestService, options: SandboxOpts = {}): Promise<Sandbox> {
  const sandbox = await Sandbox.create('base', { timeoutMs: 600_000, ...options, ...service.connection });
  await sandbox.files.write('/home/user/server.mjs', SERVER);
  const started = await sandbox.commands.run('ulimit -n 8192; exec node /home/user/server.mjs', {
    background: true,
    timeoutMs: 0,
  });
  // It ends with its sandbox, which is no news.
  void started.wait().catch(() => undefined);
  for (const giveUpAt = Date.now() + 30_000; !started.stdout.includes('ready'); await sleep(20))
    if (Date.now() > giveUpAt) throw new Error(`the server does not start: ${started.stderr}`);
  return sandbox;
}

function byHost(
  service: TestService,
  sandbox: Sandbox,
  port: number,
  pathAndQuery: string,
  headers: Record<string, string> = {},
  agent?: http.Agent,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const host = `${port}-${sandbox.sandboxId}.${service.domain}`;
    const options = { host: '127.0.0.1', port: service.port, path: pathAndQuery, headers: { host, ...headers } };
    http.get({ ...options, ...(agent !== undefined && { agent }) }, resolve).on('error', reject);
  });
}

async function textOf(res: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of res) text += chunk;
  return text;
}

async function openSocket(service: TestService, sandbox: Sandbox): Promise<WebSocket> {
  const headers = { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': '3000' };
  const socket = new WebSocket(`ws://127.0.0.1:${service.port}/socket`, { headers } as never);
  await new Promise<void>((resolve, reject) => {
    socket.onopen = () => resolve();
    socket.onerror = (event) => reject(new Error(`no WebSocket: ${'message' in event ? event.message : 'failed'}`));
  });
  return socket;
}

/** Resident memory of the service, bytes. */
function memoryOf(service: TestService): number {
  const status = readFileSync(`/proc/${service.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024;
}
