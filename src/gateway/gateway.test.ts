import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http, { type IncomingMessage, type Server } from 'node:http';
import http2 from 'node:http2';
import { type AddressInfo, connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FakeSandbox, sandboxRow } from '../../tests/support/fake-sandbox.ts';
import { Log } from '../core/log.ts';
import { createEnvdHandler } from '../envd/server.ts';
import { SandboxProxy } from '../proxy/proxy.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';
import { createGateway } from './gateway.ts';
import { Listener } from './listener.ts';

/** Machines that run tests are busy: what must come is waited for long enough. */
const eventually = <T>(seen: () => T) => expect.poll(seen, { timeout: 10_000 });

const log = new Log('error');
const closers: (() => unknown)[] = [];
let sandbox: FakeSandbox;
let port: number;

async function startGateway(row: Partial<SandboxRow> = {}, options: { tls?: boolean; maxConnections?: number } = {}) {
  sandbox = new FakeSandbox(sandboxRow(row));
  const proxy = new SandboxProxy({
    dataPlane: sandbox,
    log,
    ...(options.maxConnections !== undefined && { maxConnections: options.maxConnections }),
  });
  const gateway = createGateway({
    domain: 'sandbar.local',
    controlPlane: (req, res) => {
      res.setHeader('x-version', req.httpVersion);
      res.end('control plane');
    },
    directory: sandbox,
    envd: createEnvdHandler({ directory: sandbox, dataPlane: sandbox, log }),
    proxy,
    log,
  });
  const listener = new Listener({
    host: '127.0.0.1',
    port: 0,
    handler: gateway.handle,
    upgrade: gateway.upgrade,
    ...(options.tls && { tls: selfSigned() }),
  });
  const listening = await listener.start();
  closers.push(
    () => listener.stop(),
    () => proxy.close(),
  );
  return listening;
}

beforeEach(async () => {
  port = await startGateway();
});

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** A program inside the sandbox. */
async function program(handler: http.RequestListener): Promise<{ port: number; server: Server }> {
  const server = http.createServer(handler);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, server };
}

const hostOfPort = (inner: number) => `${inner}-${sandbox.row.id}.sandbar.local`;

function ask(
  inner: number,
  options: http.RequestOptions & { body?: string } = {},
): Promise<{ res: IncomingMessage; body: string }> {
  return new Promise((resolve, reject) => {
    const { body, headers, ...rest } = options;
    const req = http.request({
      port,
      host: '127.0.0.1',
      ...rest,
      headers: { host: hostOfPort(inner), ...(headers as object) },
    });
    req.on('response', async (res) => {
      try {
        const chunks: Buffer[] = [];
        for await (const chunk of res) chunks.push(chunk);
        resolve({ res, body: Buffer.concat(chunks).toString() });
      } catch (error) {
        reject(error);
      }
    });
    req.on('error', reject);
    req.end(body);
  });
}

test('a host that is no sandbox goes to the control plane', async () => {
  const res = await fetch(`http://127.0.0.1:${port}/health`);
  expect(await res.text()).toBe('control plane');
  expect(res.headers.get('x-version')).toBe('1.1');
});

test('HTTP/2 with prior knowledge is spoken on the same port', async () => {
  const session = http2.connect(`http://127.0.0.1:${port}`);
  const stream = session.request({ ':path': '/health' });
  const [headers] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders];
  expect(headers['x-version']).toBe('2.0');
  stream.resume();
  await once(stream, 'end');
  session.close();
});

test('a preface that arrives byte by byte is still HTTP/2, a slow HTTP/1 request still HTTP/1', async () => {
  const socket = connectTcp(port, '127.0.0.1');
  for (const char of 'PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n') {
    socket.write(char);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  let text = '';
  for await (const chunk of socket) text += chunk;
  expect(text).toContain('control plane');
});

test('TLS offers both versions by ALPN', async () => {
  const secure = await startGateway({}, { tls: true });
  for (const [protocol, version] of [
    ['h2', '2.0'],
    ['http/1.1', '1.1'],
  ] as const) {
    const seen =
      protocol === 'h2'
        ? await new Promise((resolve, reject) => {
            const session = http2.connect(`https://127.0.0.1:${secure}`, { rejectUnauthorized: false });
            session.on('error', reject);
            const stream = session.request({ ':path': '/' });
            stream.on('response', (headers) => {
              resolve(headers['x-version']);
              session.close();
            });
            stream.resume();
          })
        : await new Promise((resolve, reject) => {
            const https = import('node:https');
            https.then(({ default: client }) =>
              client
                .get({ port: secure, host: '127.0.0.1', rejectUnauthorized: false, agent: false }, (res) => {
                  resolve(res.headers['x-version']);
                  res.resume();
                })
                .on('error', reject),
            );
          });
    expect(seen).toBe(version);
  }
});

test('a request reaches the program with its host and body, the answer comes back', async () => {
  const inner = await program(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk);
    res.setHeader('set-cookie', ['a=1', 'b=2']);
    res.statusCode = 201;
    res.end(
      JSON.stringify({
        url: req.url,
        method: req.method,
        headers: req.headers,
        body: Buffer.concat(chunks).toString(),
      }),
    );
  });
  const { res, body } = await ask(inner.port, {
    method: 'POST',
    path: '/x?y=1',
    headers: { 'x-forwarded-for': '1.1.1.1', 'x-own': 'z' },
    body: 'payload',
  });
  expect(res.statusCode).toBe(201);
  expect(res.headers['set-cookie']).toEqual(['a=1', 'b=2']);
  const seen = JSON.parse(body);
  expect(seen).toMatchObject({ url: '/x?y=1', method: 'POST', body: 'payload' });
  expect(seen.headers).toMatchObject({ host: hostOfPort(inner.port), 'x-own': 'z' });
  expect(seen.headers).not.toHaveProperty('x-forwarded-for');
});

test('headers route under any host', async () => {
  const inner = await program((_req, res) => res.end('inside'));
  const res = await fetch(`http://127.0.0.1:${port}/`, {
    headers: { 'e2b-sandbox-id': sandbox.row.id, 'e2b-sandbox-port': String(inner.port) },
  });
  expect(await res.text()).toBe('inside');
});

test('connections to the program are kept and used again, and a closed one is replaced', async () => {
  const inner = await program((_req, res) => res.end('ok'));
  for (let i = 0; i < 5; i++) expect((await ask(inner.port)).body).toBe('ok');
  expect(sandbox.dials).toBe(1);
  inner.server.closeAllConnections();
  expect((await ask(inner.port)).body).toBe('ok');
});

test('HTTP/2 requests are passed on over HTTP/1.1', async () => {
  const inner = await program(async (req, res) => {
    let size = 0;
    for await (const chunk of req) size += chunk.length;
    res.end(`${req.method} ${req.headers.host} ${size}`);
  });
  const session = http2.connect(`http://127.0.0.1:${port}`);
  const stream = session.request({ ':method': 'POST', ':path': '/', ':authority': hostOfPort(inner.port) });
  stream.end(Buffer.alloc(100_000));
  let text = '';
  for await (const chunk of stream) text += chunk;
  expect(text).toBe(`POST ${hostOfPort(inner.port)} 100000`);
  session.close();
});

test('events arrive as they are sent', async () => {
  let send: ((text: string) => void) | undefined;
  const inner = await program((_req, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    res.flushHeaders();
    send = (text) => res.write(text);
  });
  const req = http.get({ port, host: '127.0.0.1', headers: { host: hostOfPort(inner.port) } });
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  for (const text of ['data: 1\n\n', 'data: 2\n\n']) {
    send?.(text);
    const [chunk] = await once(res, 'data');
    expect(String(chunk)).toBe(text);
  }
  req.destroy();
});

test('a closed port is told after some tries', async () => {
  const started = performance.now();
  const { res, body } = await ask(1);
  expect(performance.now() - started).toBeGreaterThan(900);
  expect(res.statusCode).toBe(502);
  expect(JSON.parse(body)).toEqual({
    sandboxId: sandbox.row.id,
    message: 'The sandbox is running but port is not open',
    port: 1,
    code: 502,
  });
});

test('a program that starts to listen a moment later is reached', async () => {
  const reserved = await program((_req, res) => res.end('late'));
  const { port: inner } = reserved;
  reserved.server.close();
  setTimeout(() => reserved.server.listen(inner, '127.0.0.1'), 250);
  expect((await ask(inner)).body).toBe('late');
});

test('an unknown sandbox is 502, reserved paths are 404 before that', async () => {
  const unknown = { host: `3000-iunknown.sandbar.local` };
  const { res, body } = await ask(3000, { headers: unknown });
  expect(res.statusCode).toBe(502);
  expect(JSON.parse(body)).toEqual({ sandboxId: 'iunknown', message: 'The sandbox was not found', code: 502 });
  const init = await ask(49983, { method: 'POST', path: '/init', headers: { host: '49983-iunknown.sandbar.local' } });
  expect(init.res.statusCode).toBe(404);
  expect(JSON.parse(init.body)).toMatchObject({ path: '/init', code: 404 });
});

test('malformed targets are 400 in plain text', async () => {
  const { res, body } = await ask(0);
  expect(res.statusCode).toBe(400);
  expect(res.headers['content-type']).toMatch(/^text\/plain/);
  expect(body.trim()).toBe('Invalid sandbox port');
});

test('private traffic needs the token', async () => {
  port = await startGateway({ trafficAccessToken: 'secret' });
  const inner = await program((req, res) => res.end(String(req.headers['e2b-traffic-access-token'])));
  expect((await ask(inner.port)).res.statusCode).toBe(403);
  const wrong = await ask(inner.port, { headers: { 'e2b-traffic-access-token': 'guess' } });
  expect(wrong.res.statusCode).toBe(403);
  expect(JSON.parse(wrong.body).message).toMatch(/is invalid$/);
  const right = await ask(inner.port, { headers: { 'e2b-traffic-access-token': 'secret' } });
  expect(right.body).toBe('undefined');
});

test('one connection too many is 429', async () => {
  port = await startGateway({}, { maxConnections: 1 });
  const inner = await program((_req, res) => void res.writeHead(200).write('…'));
  const first = http.get({ port, host: '127.0.0.1', headers: { host: hostOfPort(inner.port) } });
  await once(first, 'response');
  const second = await ask(inner.port);
  expect(second.res.statusCode).toBe(429);
  expect(JSON.parse(second.body).message).toBe('The sandbox has too many concurrent incoming connections (limit: 1)');
  first.destroy();
  await eventually(async () => {
    const req = http.get({ port, host: '127.0.0.1', headers: { host: hostOfPort(inner.port) } });
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    req.destroy();
    return res.statusCode;
  }).toBe(200);
});

test('the end of a sandbox breaks an answer off; afterwards it is not found', async () => {
  const inner = await program((_req, res) => void res.writeHead(200).write('begun'));
  const req = http.get({ port, host: '127.0.0.1', headers: { host: hostOfPort(inner.port) } });
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  await once(res, 'data');
  sandbox.end();
  await expect(once(res, 'end')).rejects.toThrow(/aborted/);
  expect((await ask(inner.port)).res.statusCode).toBe(502);
});

test('a program that breaks its answer off breaks ours off', async () => {
  const inner = await program((_req, res) => {
    res.writeHead(200, { 'content-length': 100 });
    res.write('half');
    setTimeout(() => res.destroy(), 20);
  });
  await expect(ask(inner.port)).rejects.toThrow(/aborted/);
});

test('a client that leaves is noticed by the program', async () => {
  let left: (() => void) | undefined;
  const noticed = new Promise<void>((resolve) => {
    left = resolve;
  });
  const inner = await program((_req, res) => {
    res.writeHead(200).write('…');
    res.on('close', () => left?.());
  });
  const req = http.get({ port, host: '127.0.0.1', headers: { host: hostOfPort(inner.port) } });
  await once(req, 'response');
  req.destroy();
  await noticed;
});

test('upgraded connections carry bytes both ways', async () => {
  const inner = await program(() => undefined);
  inner.server.on('upgrade', (req, socket) => {
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${req.headers.upgrade}\r\n\r\nhello`,
    );
    socket.on('data', (chunk: Buffer) => socket.write(chunk.toString().toUpperCase()));
  });
  const req = http.get({
    port,
    host: '127.0.0.1',
    headers: { host: hostOfPort(inner.port), connection: 'Upgrade', upgrade: 'websocket' },
  });
  const [res, socket, head] = await once(req, 'upgrade');
  expect(res.statusCode).toBe(101);
  let text = head.toString();
  socket.on('data', (chunk: Buffer) => {
    text += chunk;
  });
  await eventually(() => text).toBe('hello');
  socket.write('echo');
  await eventually(() => text).toBe('helloECHO');
  sandbox.end();
  await once(socket, 'close');
});

test('an upgrade that the program refuses is refused with its words; a closed port with ours', async () => {
  const inner = await program((_req, res) => {
    res.statusCode = 418;
    res.end('no');
  });
  const upgrade = { connection: 'Upgrade', upgrade: 'websocket' };
  const refused = await ask(inner.port, { headers: upgrade });
  expect(refused.res.statusCode).toBe(418);
  expect(refused.body).toBe('no');
  expect((await ask(1, { headers: upgrade })).res.statusCode).toBe(502);
});

test('gRPC goes through as HTTP/2, trailers and both directions', async () => {
  const server = http2.createServer();
  server.on('stream', (stream, headers) => {
    stream.respond(
      { ':status': 200, 'content-type': 'application/grpc', 'x-path': headers[':path'] },
      { waitForTrailers: true },
    );
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.on('data', (chunk: Buffer) => stream.write(chunk.toString().toUpperCase()));
    stream.on('end', () => stream.end());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => server.close());
  const inner = (server.address() as AddressInfo).port;
  const session = http2.connect(`http://127.0.0.1:${port}`);
  for (const word of ['one', 'two']) {
    const stream = session.request({
      ':method': 'POST',
      ':path': '/pkg.Service/Method',
      ':authority': hostOfPort(inner),
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    stream.write(word);
    const [headers] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders];
    expect(headers['x-path']).toBe('/pkg.Service/Method');
    const [chunk] = await once(stream, 'data');
    expect(String(chunk)).toBe(word.toUpperCase());
    const trailers = once(stream, 'trailers');
    stream.end();
    expect((await trailers)[0]).toMatchObject({ 'grpc-status': '0' });
  }
  expect(sandbox.dials).toBe(1);
  session.close();
});

test('a large body goes through both ways without being held', async () => {
  const inner = await program((req, res) => void req.pipe(res));
  const total = 64 * 1024 * 1024;
  const req = http.request({ port, host: '127.0.0.1', method: 'POST', headers: { host: hostOfPort(inner.port) } });
  const block = Buffer.alloc(1024 * 1024, 7);
  const sending = (async () => {
    for (let sent = 0; sent < total; sent += block.length) {
      if (!req.write(block)) await once(req, 'drain');
    }
    req.end();
  })();
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  let received = 0;
  for await (const chunk of res) received += chunk.length;
  await sending;
  expect(received).toBe(total);
});

test('a garbled request gets 400 and oversized headers 431, and the port goes on', async () => {
  for (const [text, status] of [
    ['GARBAGE\r\n\r\n', '400'],
    [`GET / HTTP/1.1\r\nHost: localhost\r\nX-Big: ${'x'.repeat(100_000)}\r\n\r\n`, '431'],
  ] as const) {
    const socket = connectTcp(port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(text);
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    await once(socket, 'close');
    expect(answer.slice(9, 12)).toBe(status);
  }
  expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(200);
});

function selfSigned(): { cert: Buffer; key: Buffer } {
  const dir = mkdtempSync(path.join(tmpdir(), 'sandbar-tls-'));
  try {
    const [key, cert] = [path.join(dir, 'key.pem'), path.join(dir, 'cert.pem')];
    execFileSync(
      'openssl',
      [
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-days',
        '2',
        '-subj',
        '/CN=sandbar.local',
        '-keyout',
        key,
        '-out',
        cert,
      ],
      { stdio: 'ignore' },
    );
    return { cert: readFileSync(cert), key: readFileSync(key) };
  } finally {
    rmSync(dir, { recursive: true });
  }
}

test('a connection that stops in the middle of its first word does not keep the port busy', async () => {
  const socket = connectTcp(port, '127.0.0.1');
  socket.write('PR');
  await new Promise((resolve) => setTimeout(resolve, 50));
  const before = process.cpuUsage();
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(process.cpuUsage(before).user).toBeLessThan(100_000);
  expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(200);
  socket.destroy();
});

test('a paused sandbox that wants it is woken by traffic, but only by those who may come in', async () => {
  port = await startGateway({
    state: 'paused',
    autoResume: true,
    trafficAccessToken: 'secret',
    envdAccessToken: 'token',
  });
  const inner = await program((_req, res) => res.end('awake'));
  const stranger = await ask(inner.port);
  expect(stranger.res.statusCode).toBe(403);
  expect(JSON.parse(stranger.body).message).toMatch(/^This sandbox can't be resumed with the credentials provided/);
  expect((await ask(49983, { path: '/metrics' })).res.statusCode).toBe(403);
  // Whether it runs may be asked by anybody, and wakes nobody.
  expect((await ask(49983, { path: '/health' })).res.statusCode).toBe(502);
  const preflight = await ask(49983, { method: 'OPTIONS', path: '/process.Process/Start' });
  expect(preflight.res.statusCode).toBe(204);
  expect(sandbox.wakes).toBe(0);
  const friend = await ask(inner.port, { headers: { 'e2b-traffic-access-token': 'secret' } });
  expect(friend.body).toBe('awake');
  expect(sandbox.wakes).toBe(1);
});
