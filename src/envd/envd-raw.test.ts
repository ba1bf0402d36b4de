import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { gunzipSync, gzipSync } from 'node:zlib';
import { createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from '@connectrpc/connect-node';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Filesystem } from '../../proto/gen/filesystem_pb.js';
import { Process } from '../../proto/gen/process_pb.js';
import { allFrames, type Frame, frame, frames } from '../../tests/support/connect-frames.ts';
import { EnvdServer } from '../../tests/support/envd-server.ts';
import { signatureOf } from './signature.ts';

/** Machines that run tests are busy: what must come is waited for long enough. */
const eventually = <T>(seen: () => T) => expect.poll(seen, { timeout: 10_000 });

const json = { 'content-type': 'application/json', 'connect-protocol-version': '1' };
const streaming = { 'content-type': 'application/connect+json', 'connect-protocol-version': '1' };

/** The in-sandbox interface as bytes on the wire: what the official clients do not use, and what no client should send. */
describe('the wire', { timeout: 20_000 }, () => {
  let server: EnvdServer;

  beforeAll(async () => {
    server = await EnvdServer.start();
  });
  afterAll(() => server.stop());
  beforeEach(() => server.become({}));

  const at = (name: string) => `${server.dir}/${name}`;
  const fileUrl = (name: string, query: Record<string, string> = {}) =>
    `/files?${new URLSearchParams({ path: at(name), ...query })}`;
  const rpc = (method: string, message: unknown, headers: Record<string, string> = {}) =>
    server.fetch(`/${method}`, { method: 'POST', headers: { ...json, ...headers }, body: JSON.stringify(message) });
  const stream = (method: string, message: unknown, headers: Record<string, string> = {}, signal?: AbortSignal) =>
    server.fetch(`/${method}`, {
      method: 'POST',
      headers: { ...streaming, ...headers },
      body: new Uint8Array(frame(message)),
      ...(signal && { signal }),
    });
  const start = (command: string, headers: Record<string, string> = {}, more: object = {}) =>
    stream(
      'process.Process/Start',
      { process: { cmd: '/bin/bash', args: ['-c', command] }, stdin: false, ...more },
      headers,
    );

  describe('authentication', () => {
    const token = 'secret-token';
    const secure = () => server.become({ secure: true, envdAccessToken: token, earlierTokens: ['older-token'] });

    test('without the token everything but health is refused, with one JSON shape', async () => {
      secure();
      const refusal = {
        code: 401,
        message: 'unauthorized access, please provide a valid access token or method signing if supported',
      };
      for (const [method, path] of [
        ['POST', '/filesystem.Filesystem/Stat'],
        ['POST', '/process.Process/Start'],
        ['POST', '/files/compose'],
        ['GET', '/envs'],
        ['GET', '/metrics'],
      ] as const) {
        const res = await server.fetch(path, { method, headers: json });
        expect(res.status).toBe(401);
        expect(await res.json()).toEqual(refusal);
      }
      expect((await server.fetch('/health')).status).toBe(204);
    });

    test('the present token and earlier ones open', async () => {
      secure();
      for (const given of [token, 'older-token']) {
        expect((await rpc('filesystem.Filesystem/Stat', { path: '/' }, { 'x-access-token': given })).status).toBe(200);
      }
      expect((await rpc('filesystem.Filesystem/Stat', { path: '/' }, { 'x-access-token': 'x' })).status).toBe(401);
    });

    test('files open to a signature; a wrong header is not mended by one', async () => {
      secure();
      writeFileSync(at('signed.txt'), 'signed');
      const path = at('signed.txt');
      const signature = signatureOf({ path, operation: 'read', user: '', expiration: undefined }, token);
      const get = async (query: Record<string, string>, headers = {}) => {
        const res = await server.fetch(fileUrl('signed.txt', query), { headers });
        return res.status === 200 ? await res.text() : ((await res.json()) as { message: string }).message;
      };
      expect(await get({ signature })).toBe('signed');
      expect(await get({})).toBe('missing signature query parameter');
      expect(await get({ signature: 'v1_x' })).toBe('invalid signature');
      expect(await get({ signature }, { 'x-access-token': 'x' })).toBe(
        'access token present in header but does not match',
      );
      const past = Math.floor(Date.now() / 1000) - 10;
      const expired = signatureOf({ path, operation: 'read', user: '', expiration: past }, token);
      expect(await get({ signature: expired, signature_expiration: String(past) })).toBe(
        'signature is already expired',
      );
      const write = await server.fetch(fileUrl('signed.txt', { signature }), {
        method: 'POST',
        headers: { 'content-type': 'application/octet-stream' },
        body: 'x',
      });
      expect(write.status).toBe(401);
    });

    test('preflights are answered before that', async () => {
      secure();
      const res = await server.fetch('/process.Process/Start', {
        method: 'OPTIONS',
        headers: { origin: 'https://a.test', 'access-control-request-headers': 'authorization,x-access-token' },
      });
      expect(res.status).toBe(204);
      expect(res.headers.get('access-control-allow-origin')).toBe('*');
      expect(res.headers.get('access-control-allow-headers')).toBe('authorization,x-access-token');
    });

    test('an unknown user is unauthenticated for every call', async () => {
      const authorization = `Basic ${Buffer.from('ghost:').toString('base64')}`;
      for (const [method, message] of [
        ['filesystem.Filesystem/ListDir', { path: '/' }],
        ['process.Process/List', {}],
        ['process.Process/SendSignal', { process: { pid: 1 }, signal: 'SIGNAL_SIGTERM' }],
      ] as const) {
        const res = await rpc(method, message, { authorization });
        expect(res.status).toBe(401);
        expect(await res.json()).toEqual({ code: 'unauthenticated', message: "invalid username: 'ghost'" });
      }
    });
  });

  describe('small endpoints', () => {
    test('health, envs, metrics, reserved and unknown paths', async () => {
      server.become({ envVars: { A: '1' } });
      expect((await server.fetch('/health')).status).toBe(204);
      const { id } = server.sandbox.row;
      expect(await (await server.fetch('/envs')).json()).toEqual({
        A: '1',
        E2B_SANDBOX: 'true',
        E2B_SANDBOX_ID: id,
        E2B_TEMPLATE_ID: 'base',
      });
      const metrics = (await (await server.fetch('/metrics')).json()) as Record<string, number>;
      expect(metrics).toMatchObject({ cpu_count: 2 });
      for (const name of ['ts', 'mem_total', 'mem_used', 'disk_total', 'disk_used'])
        expect(metrics[name]).toBeGreaterThan(0);
      for (const path of ['/init', '/freeze', '/upgrade', '//init', '/init/']) {
        const res = await server.fetch(path, { method: 'POST' });
        expect(res.status).toBe(404);
        expect(await res.json()).toMatchObject({ code: 404, path });
      }
      expect((await server.fetch('/nothing')).status).toBe(404);
      expect((await server.fetch('/files', { method: 'DELETE' })).status).toBe(405);
    });
  });

  describe('downloads', () => {
    beforeAll(() => {
      writeFileSync(at('ten.txt'), '0123456789');
      writeFileSync(at('plain'), 'just text');
      mkdirSync(at('adir'));
    });

    test('the whole file with its headers', async () => {
      const res = await server.fetch(fileUrl('ten.txt'), { headers: { 'accept-encoding': 'identity' } });
      expect(res.status).toBe(200);
      expect(Object.fromEntries(res.headers)).toMatchObject({
        'content-type': 'text/plain; charset=utf-8',
        'content-length': '10',
        'content-disposition': 'inline; filename=ten.txt',
        vary: 'Accept-Encoding',
        'accept-ranges': 'bytes',
      });
      expect(await res.text()).toBe('0123456789');
    });

    test('gzip where the client takes it, 406 where it takes nothing', async () => {
      const raw = await rawGet(fileUrl('ten.txt'), { 'accept-encoding': 'gzip' });
      expect(raw.headers['content-encoding']).toBe('gzip');
      expect(raw.headers['content-length']).toBeUndefined();
      expect(gunzipSync(raw.body).toString()).toBe('0123456789');
      const none = await rawGet(fileUrl('ten.txt'), { 'accept-encoding': 'identity;q=0, br' });
      expect(none.status).toBe(406);
      expect(JSON.parse(none.body.toString()).message).toBe(
        'error parsing Accept-Encoding: no acceptable encoding found, supported: [identity, gzip]',
      );
    });

    test.each([
      ['bytes=2-4', 206, '234', 'bytes 2-4/10'],
      ['bytes=-3', 206, '789', 'bytes 7-9/10'],
      ['bytes=7-', 206, '789', 'bytes 7-9/10'],
      ['bytes=50-', 416, undefined, 'bytes */10'],
    ])('range %s', async (range, status, text, contentRange) => {
      const res = await server.fetch(fileUrl('ten.txt'), { headers: { range } });
      expect(res.status).toBe(status);
      expect(res.headers.get('content-range')).toBe(contentRange);
      expect(res.headers.get('content-encoding')).toBeNull();
      if (text !== undefined) expect(await res.text()).toBe(text);
    });

    test('conditions', async () => {
      const first = await server.fetch(fileUrl('ten.txt'), { headers: { range: 'bytes=0-' } });
      const etag = first.headers.get('etag') ?? '';
      const modified = first.headers.get('last-modified') ?? '';
      const status = async (headers: Record<string, string>) =>
        (await server.fetch(fileUrl('ten.txt'), { headers })).status;
      expect(await status({ 'if-none-match': etag })).toBe(304);
      expect(await status({ 'if-modified-since': modified })).toBe(304);
      expect(await status({ 'if-range': etag, range: 'bytes=0-1' })).toBe(206);
      expect(await status({ 'if-range': '"other"', range: 'bytes=0-1' })).toBe(200);
      expect(await status({ 'if-match': '"other"' })).toBe(412);
    });

    test('missing, directory, odd paths', async () => {
      const answer = async (path: string) => {
        const res = await server.fetch(`/files?${new URLSearchParams({ path })}`);
        return [res.status, ((await res.json()) as { message: string }).message];
      };
      expect(await answer(at('gone'))).toEqual([404, `path '${at('gone')}' does not exist`]);
      expect(await answer(at('adir'))).toEqual([400, `path '${at('adir')}' is a directory`]);
      expect((await answer('~root/x'))[0]).toBe(400);
      const user = await server.fetch(fileUrl('ten.txt', { username: 'ghost' }));
      expect([user.status, await user.json()]).toEqual([
        401,
        { code: 401, message: "error looking up user 'ghost': user: unknown user ghost" },
      ]);
    });

    test('a type is guessed where the name says nothing, files of /proc have content', async () => {
      const plain = await server.fetch(fileUrl('plain'), { headers: { 'accept-encoding': 'identity' } });
      expect(plain.headers.get('content-type')).toBe('text/plain; charset=utf-8');
      const proc = await server.fetch('/files?path=/proc/self/status', { headers: { 'accept-encoding': 'identity' } });
      expect(await proc.text()).toContain('Name:');
    });

    test('a large file, byte for byte', async () => {
      const data = randomBytes(24 * 1024 * 1024 + 17);
      writeFileSync(at('large'), data);
      const res = await server.fetch(fileUrl('large'));
      expect(res.headers.get('content-length')).toBe(String(data.length));
      expect(sha256(Buffer.from(await res.arrayBuffer()))).toBe(sha256(data));
    });

    test('a client that leaves half way leaves nothing open', async () => {
      const leaving = new AbortController();
      const res = await server.fetch(fileUrl('large'), { signal: leaving.signal });
      await res.body?.getReader().read();
      leaving.abort();
      expect((await server.fetch(fileUrl('ten.txt'))).status).toBe(200);
    });
  });

  describe('uploads', () => {
    const octets = { 'content-type': 'application/octet-stream' };
    const post = (url: string, body: RequestInit['body'], headers: Record<string, string> = octets) =>
      server.fetch(url, { method: 'POST', headers, body: body ?? null });
    const messageOf = async (res: Response) => [res.status, ((await res.json()) as { message: string }).message];

    test('a raw body, with metadata, new files 0644 and parents 0755', async () => {
      const res = await post(fileUrl('up/new/raw.bin'), 'raw', { ...octets, 'x-metadata-Author': 'me' });
      expect(res.status).toBe(200);
      expect(await res.json()).toEqual([
        { path: at('up/new/raw.bin'), name: 'raw.bin', type: 'file', metadata: { author: 'me' } },
      ]);
      expect(statSync(at('up/new/raw.bin')).mode & 0o777).toBe(0o644);
      expect(statSync(at('up/new')).mode & 0o777).toBe(0o755);
    });

    test('a large body, plain and compressed, byte for byte', async () => {
      const data = randomBytes(24 * 1024 * 1024 + 5);
      expect((await post(fileUrl('big'), data)).status).toBe(200);
      expect(sha256(readFileSync(at('big')))).toBe(sha256(data));
      expect((await post(fileUrl('big.gz'), gzipSync(data), { ...octets, 'content-encoding': 'gzip' })).status).toBe(
        200,
      );
      expect(sha256(readFileSync(at('big.gz')))).toBe(sha256(data));
    });

    test('a form: parts named file, full names, the path parameter first', async () => {
      const form = new FormData();
      form.append('note', 'ignored');
      form.append('file', new Blob(['one']), at('form/one "quoted".txt'));
      form.append('file', new Blob(['two']), at('form/zwei größe.txt'));
      const res = await server.fetch('/files', { method: 'POST', body: form });
      expect(((await res.json()) as { path: string }[]).map((file) => file.path)).toEqual([
        at('form/one "quoted".txt'),
        at('form/zwei größe.txt'),
      ]);
      const single = new FormData();
      single.append('file', new Blob(['three']), 'other-name');
      expect((await server.fetch(fileUrl('form/three'), { method: 'POST', body: single })).status).toBe(200);
      expect(readFileSync(at('form/three'), 'utf8')).toBe('three');
    });

    test('two parts for one path, no part at all', async () => {
      const twice = new FormData();
      twice.append('file', new Blob(['first']), at('twice'));
      twice.append('file', new Blob(['second']), `${server.dir}/./twice`);
      const res = await server.fetch('/files', { method: 'POST', body: twice });
      expect((await messageOf(res))[0]).toBe(400);
      expect(readFileSync(at('twice'), 'utf8')).toBe('first');
      const none = new FormData();
      none.append('other', 'x');
      expect(await (await server.fetch('/files', { method: 'POST', body: none })).json()).toEqual([]);
    });

    test('an answer comes also while the client is still sending', async () => {
      mkdirSync(at('busy'), { recursive: true });
      let left = 20;
      const pieces = new ReadableStream({
        pull(controller) {
          controller.enqueue(new Uint8Array(1024 * 1024));
          if (--left === 0) controller.close();
        },
      });
      const res = await server.fetch(fileUrl('busy'), {
        method: 'POST',
        headers: octets,
        body: pieces,
        duplex: 'half',
      } as RequestInit);
      expect(res.status).toBe(400);
    });

    test('a full disk is 507 and the service goes on', async () => {
      mkdirSync(at('small'));
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', at('small')]);
      try {
        const res = await post(fileUrl('small/full'), Buffer.alloc(3 * 1024 * 1024));
        const [status, message] = await messageOf(res);
        expect(status).toBe(507);
        expect(message).toMatch(/^not enough disk space available/);
        writeFileSync(at('compose-a'), Buffer.alloc(2 * 1024 * 1024));
        const joined = await server.fetch('/files/compose', {
          method: 'POST',
          headers: json,
          body: JSON.stringify({ source_paths: [at('compose-a')], destination: at('small/joined') }),
        });
        expect(joined.status).toBe(507);
        expect(statSync(at('compose-a')).size).toBe(2 * 1024 * 1024);
      } finally {
        execFileSync('umount', [at('small')]);
      }
    });

    test('a client that leaves in the middle of an upload is no event', async () => {
      const req = http.request(`${server.url}${fileUrl('left')}`, {
        method: 'POST',
        headers: { ...octets, 'e2b-sandbox-id': server.sandbox.row.id, 'e2b-sandbox-port': '49983' },
      });
      req.on('error', () => undefined);
      for (let i = 0; i < 40; i++) if (!req.write(Buffer.alloc(256 * 1024))) await once(req, 'drain');
      req.destroy();
      expect((await post(fileUrl('left'), 'again')).status).toBe(200);
      expect(readFileSync(at('left'), 'utf8')).toBe('again');
    });

    test('what is wrong is said', async () => {
      writeFileSync(at('afile'), '');
      mkdirSync(at('updir'), { recursive: true });
      expect(await messageOf(await post('/files', 'x'))).toEqual([
        400,
        'path query parameter is required for raw body upload',
      ]);
      expect(await messageOf(await post(fileUrl('x'), 'x', { 'content-type': 'text/plain' }))).toEqual([
        400,
        'unsupported content type: text/plain',
      ]);
      expect(await messageOf(await post(fileUrl('x'), 'x', { ...octets, 'content-encoding': 'br' }))).toEqual([
        400,
        'unsupported content encoding: br',
      ]);
      expect(
        (await messageOf(await post(fileUrl('x'), 'not gzip', { ...octets, 'content-encoding': 'gzip' })))[0],
      ).toBe(400);
      expect(await messageOf(await post(fileUrl('updir'), 'x'))).toEqual([400, `path is a directory: ${at('updir')}`]);
      const below = await messageOf(await post(fileUrl('afile/x'), 'x'));
      expect(below[0]).toBe(500);
      expect(below[1]).toContain('path is a file: ');
      expect((await messageOf(await post(fileUrl('x'), 'x', { ...octets, 'x-metadata-a': 'v'.repeat(5000) })))[0]).toBe(
        400,
      );
      const broken = { 'content-type': 'multipart/form-data; boundary=XX' };
      expect((await messageOf(await post('/files', '--XX\r\nbroken', broken)))[0]).toBe(400);
      expect((await server.fetch('/health')).status).toBe(204);
    });
  });

  describe('compose', () => {
    const compose = async (body: unknown) => {
      const res = await server.fetch('/files/compose', { method: 'POST', headers: json, body: JSON.stringify(body) });
      return [res.status, (await res.json()) as Record<string, unknown>] as const;
    };

    test('joins in order, overwrites, removes the sources', async () => {
      writeFileSync(at('part1'), 'one ');
      writeFileSync(at('part2'), 'two');
      writeFileSync(at('whole.txt'), 'old');
      const [status, body] = await compose({ source_paths: [at('part1'), at('part2')], destination: at('whole.txt') });
      expect([status, body]).toEqual([200, { path: at('whole.txt'), name: 'whole.txt', type: 'file' }]);
      expect(readFileSync(at('whole.txt'), 'utf8')).toBe('one two');
      expect(() => statSync(at('part1'))).toThrow();
    });

    test('what cannot be joined', async () => {
      mkdirSync(at('composedir'), { recursive: true });
      writeFileSync(at('whole2'), 'x');
      expect((await compose({ source_paths: [], destination: at('d') }))[0]).toBe(400);
      expect((await compose({ source_paths: [at('whole2')], destination: '' }))[0]).toBe(400);
      expect((await compose({ source_paths: [at('whole2')], destination: at('whole2') }))[0]).toBe(400);
      expect((await compose({ source_paths: [`${server.dir}//whole2`], destination: at('whole2') }))[0]).toBe(400);
      expect((await compose({ source_paths: [at('composedir')], destination: at('d') }))[0]).toBe(400);
      const [status, body] = await compose({ source_paths: [at('whole2'), at('gone')], destination: at('d') });
      expect([status, body.message]).toEqual([404, `source file not found: ${at('gone')}`]);
      expect(readFileSync(at('whole2'), 'utf8')).toBe('x');
      expect((await server.fetch('/files/compose', { method: 'POST', headers: json, body: '{' })).status).toBe(400);
    });
  });

  describe('file system calls', () => {
    const failure = async (method: string, message: unknown) => {
      const res = await rpc(`filesystem.Filesystem/${method}`, message);
      return (await res.json()) as { code: string; message: string };
    };

    test('codes and messages', async () => {
      writeFileSync(at('file'), '');
      mkdirSync(at('dir'), { recursive: true });
      writeFileSync(at('dir/inside'), '');
      symlinkSync('loop', at('loop'));
      expect(await failure('Stat', { path: at('gone') })).toEqual({
        code: 'not_found',
        message: `file not found: lstat ${at('gone')}: no such file or directory`,
      });
      expect(await failure('MakeDir', { path: at('dir') })).toEqual({
        code: 'already_exists',
        message: `directory already exists: ${at('dir')}`,
      });
      expect(await failure('MakeDir', { path: at('file') })).toEqual({
        code: 'invalid_argument',
        message: `path already exists but it is not a directory: ${at('file')}`,
      });
      expect((await failure('MakeDir', { path: at('file/x') })).code).toBe('internal');
      expect((await failure('ListDir', { path: at('gone') })).message).toMatch(/^path not found: /);
      expect(await failure('ListDir', { path: at('file') })).toEqual({
        code: 'invalid_argument',
        message: `path is not a directory: ${at('file')}`,
      });
      expect(await failure('ListDir', { path: at('loop') })).toEqual({
        code: 'failed_precondition',
        message: `cyclic symlink or chain >255 links at "${at('loop')}"`,
      });
      expect((await failure('Move', { source: at('gone'), destination: at('x') })).message).toMatch(
        /^source file not found: /,
      );
      expect(await failure('Move', { source: at('file'), destination: at('dir') })).toMatchObject({
        code: 'internal',
        message: expect.stringMatching(/^error renaming: /),
      });
      expect(await failure('CreateWatcher', { path: at('gone') })).toMatchObject({
        code: 'not_found',
        message: expect.stringMatching(/^path .* not found: /),
      });
      expect(await failure('CreateWatcher', { path: at('file') })).toMatchObject({
        code: 'invalid_argument',
        message: expect.stringMatching(/^path .* not a directory: /),
      });
      for (const method of ['GetWatcherEvents', 'RemoveWatcher']) {
        expect(await failure(method, { watcherId: 'wnone' })).toEqual({
          code: 'not_found',
          message: 'watcher with id wnone not found',
        });
      }
      expect((await failure('Stat', { path: '~someone/x' })).code).toBe('invalid_argument');
      expect(await failure('Remove', { path: at('gone') })).toEqual({});
    });

    test('a polled watcher is drained by reading', async () => {
      mkdirSync(at('polled'));
      const { watcherId } = (await (
        await rpc('filesystem.Filesystem/CreateWatcher', { path: at('polled'), includeEntry: true })
      ).json()) as { watcherId: string };
      expect(watcherId).toMatch(/^w[a-z0-9]{20}$/);
      const events = async () =>
        (
          (await (await rpc('filesystem.Filesystem/GetWatcherEvents', { watcherId })).json()) as {
            events?: Record<string, unknown>[];
          }
        ).events ?? [];
      writeFileSync(at('polled/a'), 'x');
      let seen: Record<string, unknown>[] = [];
      await eventually(async () => {
        seen = [...seen, ...(await events())];
        return seen.map((event) => `${event.type} ${event.name}`);
      }).toEqual(expect.arrayContaining(['EVENT_TYPE_CREATE a', 'EVENT_TYPE_WRITE a']));
      expect(seen[0]?.entry).toMatchObject({ path: at('polled/a') });
      expect(await events()).toEqual([]);
      expect((await rpc('filesystem.Filesystem/RemoveWatcher', { watcherId })).status).toBe(200);
      expect((await rpc('filesystem.Filesystem/RemoveWatcher', { watcherId })).status).toBe(404);
    });

    test('a watch stream begins with start and sends signs of life', async () => {
      mkdirSync(at('quiet'));
      const leaving = new AbortController();
      const res = await stream(
        'filesystem.Filesystem/WatchDir',
        { path: at('quiet') },
        { 'keepalive-ping-interval': '1' },
        leaving.signal,
      );
      const seen: Frame[] = [];
      for await (const next of frames(res.body!)) {
        seen.push(next);
        if (seen.length === 2) break;
      }
      expect(seen.map(({ message }) => message)).toEqual([{ start: {} }, { keepalive: {} }]);
      leaving.abort();
    });

    test('a watch stream ends at its deadline', async () => {
      const res = await stream('filesystem.Filesystem/WatchDir', { path: server.dir }, { 'connect-timeout-ms': '200' });
      expect((await allFrames(res)).at(-1)?.message).toMatchObject({ error: { code: 'deadline_exceeded' } });
    });
  });

  describe('processes', () => {
    const textOf = (seen: Frame[], output: string) =>
      seen
        .map(({ message }) => (message.event as { data?: Record<string, string> } | undefined)?.data?.[output] ?? '')
        .map((data) => Buffer.from(data, 'base64').toString())
        .join('');
    const pidOf = (first: Frame | undefined) =>
      (first?.message.event as { start?: { pid: number } } | undefined)?.start?.pid;

    test('start, data, end, end of stream, in this order', async () => {
      const res = await start('echo out; echo err >&2');
      expect(res.headers.get('content-type')).toBe('application/connect+json');
      const seen = await allFrames(res);
      expect(seen[0]?.message).toEqual({ event: { start: { pid: expect.any(Number) } } });
      expect(textOf(seen, 'stdout')).toBe('out\n');
      expect(textOf(seen, 'stderr')).toBe('err\n');
      expect(seen.at(-2)?.message).toEqual({ event: { end: { exited: true, status: 'exit status 0' } } });
      expect(seen.at(-1)).toEqual({ flags: 2, message: {} });
    });

    test('failures and signals', async () => {
      const failed = await allFrames(await start('exit 2'));
      expect(failed.at(-2)?.message).toEqual({
        event: { end: { exitCode: 2, exited: true, status: 'exit status 2', error: 'exit status 2' } },
      });
      const killed = await allFrames(await start('kill -TERM $$'));
      expect(killed.at(-2)?.message).toEqual({
        event: { end: { exitCode: -1, status: 'signal: terminated', error: 'signal: terminated' } },
      });
    });

    test('an error before the start is in the end frame of a 200', async () => {
      const res = await start('true', {}, { process: { cmd: '/bin/true', cwd: '/no/where' } });
      expect(res.status).toBe(200);
      expect(await allFrames(res)).toEqual([
        { flags: 2, message: { error: { code: 'invalid_argument', message: "cwd '/no/where' does not exist" } } },
      ]);
    });

    test('a deadline kills, ends the stream, and gives the output so far', async () => {
      const begun = performance.now();
      const seen = await allFrames(await start('echo so far; exec sleep 40', { 'connect-timeout-ms': '1500' }));
      expect(performance.now() - begun).toBeLessThan(5000);
      expect(textOf(seen, 'stdout')).toBe('so far\n');
      expect(seen.at(-1)?.message).toMatchObject({ error: { code: 'deadline_exceeded' } });
      expect(seen.some(({ message }) => JSON.stringify(message).includes('"end"'))).toBe(false);
    });

    test('a deadline of weeks is not one of now', async () => {
      const seen = await allFrames(await start('sleep 0.2', { 'connect-timeout-ms': '9999999999' }));
      expect(seen.at(-2)?.message).toMatchObject({ event: { end: { exited: true } } });
    });

    test('signs of life while a process is silent', async () => {
      const seen = await allFrames(await start('sleep 2.5', { 'keepalive-ping-interval': '1' }));
      expect(seen.filter(({ message }) => JSON.stringify(message) === '{"event":{"keepalive":{}}}').length).toBe(2);
    });

    test('several subscribers see every byte; one that connects sees only what is new, or, asked for, what was missed', async () => {
      const gate = at('gate');
      const first = await start(
        `echo before; while [ ! -e ${gate} ]; do sleep 0.05; done; echo after`,
        {},
        { tag: 'shared' },
      );
      const reading = frames(first.body!);
      const pid = pidOf((await reading.next()).value as Frame);
      const before = (await reading.next()).value as Frame;
      expect(textOf([before], 'stdout')).toBe('before\n');
      const connect = (headers = {}) => stream('process.Process/Connect', { process: { tag: 'shared' } }, headers);
      const [plain, replayed] = await Promise.all([connect(), connect({ 'x-sandbar-replay': 'true' })]);
      writeFileSync(gate, '');
      const [plainSeen, replayedSeen, rest] = await Promise.all([
        allFrames(plain),
        allFrames(replayed),
        Array.fromAsync(reading),
      ]);
      expect(pidOf(plainSeen[0])).toBe(pid);
      expect(textOf(plainSeen, 'stdout')).toBe('after\n');
      expect(textOf(replayedSeen, 'stdout')).toBe('before\nafter\n');
      expect(textOf(rest, 'stdout')).toBe('after\n');
      // Retained: a subscriber that comes too late still learns the end.
      const late = await allFrames(await stream('process.Process/Connect', { process: { pid } }));
      expect(late.map(({ message }) => Object.keys((message.event as object) ?? {})[0])).toEqual([
        'start',
        'end',
        undefined,
      ]);
    });

    test('the deadline of Connect bounds the stream, not the process', async () => {
      const res = await start('sleep 1; echo done');
      const reading = frames(res.body!);
      const pid = pidOf((await reading.next()).value as Frame);
      const bounded = await allFrames(
        await stream('process.Process/Connect', { process: { pid } }, { 'connect-timeout-ms': '200' }),
      );
      expect(bounded.at(-1)?.message).toMatchObject({ error: { code: 'deadline_exceeded' } });
      expect(textOf(await Array.fromAsync(reading), 'stdout')).toBe('done\n');
    });

    test('input as a stream, and without a start', async () => {
      const res = await start('cat', {}, { stdin: undefined });
      const reading = frames(res.body!);
      const pid = pidOf((await reading.next()).value as Frame);
      const body = Buffer.concat([
        frame({ start: { process: { pid } } }),
        frame({ data: { input: { stdin: Buffer.from('streamed ').toString('base64') } } }),
        frame({ keepalive: {} }),
        frame({ data: { input: { stdin: Buffer.from('input').toString('base64') } } }),
      ]);
      const sent = await server.fetch('/process.Process/StreamInput', { method: 'POST', headers: streaming, body });
      expect(await allFrames(sent)).toEqual([
        { flags: 0, message: {} },
        { flags: 2, message: {} },
      ]);
      expect((await rpc('process.Process/CloseStdin', { process: { pid } })).status).toBe(200);
      // A second time is harmless; by then cat may have read its end and be gone.
      expect([200, 404]).toContain((await rpc('process.Process/CloseStdin', { process: { pid } })).status);
      expect(textOf(await Array.fromAsync(reading), 'stdout')).toBe('streamed input');
      const startless = await server.fetch('/process.Process/StreamInput', {
        method: 'POST',
        headers: streaming,
        body: new Uint8Array(frame({ data: { input: { stdin: '' } } })),
      });
      expect((await allFrames(startless)).at(-1)?.message).toMatchObject({ error: { code: 'invalid_argument' } });
    });

    test('codes and messages', async () => {
      const failure = async (method: string, message: unknown) => {
        const res = await rpc(`process.Process/${method}`, message);
        return (await res.json()) as { code: string; message: string };
      };
      const res = await start('sleep 20', {}, { tag: 'target' });
      const pid = pidOf((await frames(res.body!).next()).value as Frame);
      const input = (kind: string) => ({ process: { pid }, input: { [kind]: 'eA==' } });
      expect(await failure('SendInput', input('stdin'))).toEqual({
        code: 'internal',
        message: 'error writing to stdin: stdin not enabled or closed',
      });
      expect(await failure('SendInput', input('pty'))).toMatchObject({
        code: 'internal',
        message: expect.stringMatching(/^error writing to tty: /),
      });
      expect(await failure('Update', { process: { pid }, pty: { size: { cols: 1, rows: 1 } } })).toEqual({
        code: 'internal',
        message: 'error resizing tty: tty not assigned to process',
      });
      expect((await failure('SendSignal', { process: { pid }, signal: 'SIGNAL_UNSPECIFIED' })).code).toBe(
        'unimplemented',
      );
      expect(await failure('SendSignal', { process: { pid: 999999 }, signal: 'SIGNAL_SIGKILL' })).toEqual({
        code: 'not_found',
        message: 'process with pid 999999 not found',
      });
      expect(await failure('Update', { process: { tag: 'none' }, pty: { size: { cols: 1, rows: 1 } } })).toEqual({
        code: 'not_found',
        message: 'process with tag none not found',
      });
      expect(await failure('SendSignal', { process: { tag: 'target' }, signal: 'SIGNAL_SIGKILL' })).toEqual({});
    });

    test('a terminal does not take what is for standard input', async () => {
      const res = await start('sleep 20', {}, { pty: { size: { cols: 80, rows: 24 } } });
      const pid = pidOf((await frames(res.body!).next()).value as Frame);
      const close = await rpc('process.Process/CloseStdin', { process: { pid } });
      expect(await close.json()).toMatchObject({
        code: 'unknown',
        message: expect.stringMatching(/^error closing stdin: /),
      });
      const stdin = await rpc('process.Process/SendInput', { process: { pid }, input: { stdin: 'eA==' } });
      expect(await stdin.json()).toMatchObject({ code: 'internal' });
      await rpc('process.Process/SendSignal', { process: { pid }, signal: 'SIGNAL_SIGKILL' });
    });

    test('a subscriber that is slow for longer than the agent waits for one is not forgotten', {
      timeout: 40_000,
    }, async () => {
      const total = 30_000_000;
      const res = await start(`head -c ${total} /dev/zero`);
      const reading = frames(res.body!);
      await reading.next();
      await new Promise((resolve) => setTimeout(resolve, 13_000));
      let bytes = 0;
      for await (const { message } of reading) {
        const { data } = (message.event ?? {}) as { data?: { stdout?: string } };
        bytes += Buffer.from(data?.stdout ?? '', 'base64').length;
      }
      expect(bytes).toBe(total);
    });

    test('a hundred processes at once, no byte lost', { timeout: 60_000 }, async () => {
      const results = await Promise.all(
        Array.from({ length: 100 }, async (_, index) => {
          const seen = await allFrames(
            await start(`for i in 1 2 3 4 5; do head -c 20000 /dev/zero; echo ${index}; sleep 0.05; done`),
          );
          return [textOf(seen, 'stdout').length, seen.at(-2)?.message];
        }),
      );
      for (const [index, [length, end]] of results.entries()) {
        expect(length).toBe(5 * (20_000 + 1 + String(index).length));
        expect(end).toEqual({ event: { end: { exited: true, status: 'exit status 0' } } });
      }
    });

    test('a subscriber that does not read holds back its own process, and loses nothing', async () => {
      const total = 40_000_000;
      const leaving = new AbortController();
      const slow = await stream(
        'process.Process/Start',
        { process: { cmd: '/bin/bash', args: ['-c', `head -c ${total} /dev/zero; echo held >&2`] }, stdin: false },
        {},
        leaving.signal,
      );
      const other = await allFrames(await start('echo quick'));
      expect(textOf(other, 'stdout')).toBe('quick\n');
      await new Promise((resolve) => setTimeout(resolve, 300));
      let bytes = 0;
      for await (const { message } of frames(slow.body!)) {
        const { data } = (message.event ?? {}) as { data?: { stdout?: string } };
        bytes += Buffer.from(data?.stdout ?? '', 'base64').length;
      }
      expect(bytes).toBe(total);
    });
  });

  describe('encodings', () => {
    test('the protocol header is required and named', async () => {
      for (const version of [undefined, '2']) {
        const res = await server.fetch('/filesystem.Filesystem/Stat', {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...(version && { 'connect-protocol-version': version }) },
          body: '{"path":"/"}',
        });
        expect(res.status).toBe(400);
        expect(await res.json()).toMatchObject({
          code: 'invalid_argument',
          message: expect.stringMatching(/connect-protocol-version/i),
        });
      }
    });

    test('what is malformed or too large is refused, and the service goes on', async () => {
      const send = (
        headers: Record<string, string>,
        body: RequestInit['body'],
        method = 'filesystem.Filesystem/Stat',
      ) => server.fetch(`/${method}`, { method: 'POST', headers, body: body ?? null });
      expect(await (await send(json, '{"path":')).json()).toMatchObject({ code: 'invalid_argument' });
      expect(await (await send(json, '{"path":5}')).json()).toMatchObject({ code: 'invalid_argument' });
      expect(await (await send(json, `{"path":"${'x'.repeat(5_000_000)}"}`)).json()).toMatchObject({
        code: 'resource_exhausted',
      });
      expect((await send({ ...json, 'content-type': 'text/plain' }, 'x')).status).toBe(415);
      expect(await (await send({ ...json, 'content-encoding': 'br' }, 'x')).json()).toMatchObject({
        code: 'unimplemented',
      });
      expect((await server.fetch('/filesystem.Filesystem/Stat')).status).toBe(405);
      expect(
        (await server.fetch('/filesystem.Filesystem/Nope', { method: 'POST', headers: json, body: '{}' })).status,
      ).toBe(404);
      const huge = Buffer.from([0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
      const oversized = await allFrames(await send(streaming, huge, 'process.Process/Start'));
      expect(oversized.at(-1)?.message).toMatchObject({ error: { code: 'resource_exhausted' } });
      const cut = await allFrames(await send(streaming, Buffer.from([0, 0, 0, 0, 9, 1]), 'process.Process/Start'));
      expect(cut.at(-1)?.message).toMatchObject({ error: { code: 'invalid_argument' } });
      const garbage = await allFrames(
        await send(
          streaming,
          Buffer.concat([Buffer.from([0, 0, 0, 0, 3]), Buffer.from('???')]),
          'process.Process/Start',
        ),
      );
      expect(garbage.at(-1)?.message).toMatchObject({ error: { code: 'invalid_argument' } });
      expect(
        (await send({ ...streaming, 'connect-timeout-ms': 'soon' }, new Uint8Array(frame({})), 'process.Process/Start'))
          .status,
      ).toBe(200);
      expect((await rpc('filesystem.Filesystem/Stat', { path: '/' })).status).toBe(200);
    });

    test('a message that is too large and does not say so is refused too', async () => {
      for (const [method, headers, first] of [
        ['filesystem.Filesystem/Stat', json, '{"path":"'],
        ['process.Process/Start', streaming, '\0\0\x20\0\0'],
      ] as const) {
        let sent = 0;
        const body = new ReadableStream({
          start: (controller) => controller.enqueue(Buffer.from(first, 'latin1')),
          pull(controller) {
            controller.enqueue(Buffer.alloc(64 * 1024, 'x'));
            sent += 64 * 1024;
            if (sent > 8 * 1024 * 1024) controller.close();
          },
        });
        const res = await server.fetch(`/${method}`, { method: 'POST', headers, body, duplex: 'half' } as RequestInit);
        expect(await res.text()).toContain('resource_exhausted');
      }
      expect((await rpc('filesystem.Filesystem/Stat', { path: '/' })).status).toBe(200);
    });

    test('a compressed request is understood', async () => {
      const res = await server.fetch('/filesystem.Filesystem/Stat', {
        method: 'POST',
        headers: { ...json, 'content-encoding': 'gzip' },
        body: gzipSync('{"path":"/"}'),
      });
      expect(await res.json()).toMatchObject({ entry: { path: '/' } });
    });

    test.each([
      ['Connect, binary', () => createConnectTransport({ ...target(), httpVersion: '1.1', useBinaryFormat: true })],
      [
        'Connect, JSON, HTTP/2',
        () => createConnectTransport({ ...target(), httpVersion: '2', useBinaryFormat: false }),
      ],
      ['gRPC', () => createGrpcTransport(target())],
      ['gRPC-web', () => createGrpcWebTransport({ ...target(), httpVersion: '1.1' })],
    ])('%s', async (_name, transport) => {
      const made = transport();
      const files = createClient(Filesystem, made);
      expect((await files.stat({ path: '/etc' })).entry?.name).toBe('etc');
      await expect(files.stat({ path: '/gone' })).rejects.toThrow(/not_found/);
      const processes = createClient(Process, made);
      const seen: string[] = [];
      for await (const { event } of processes.start({ process: { cmd: '/bin/echo', args: ['hi'] }, stdin: false })) {
        seen.push(event?.event.case ?? '');
      }
      expect(seen).toEqual(['start', 'data', 'end']);
    });
  });

  describe('the end of the sandbox', () => {
    test('breaks a stream off without an end, and refuses from then on', async () => {
      const res = await start('sleep 20');
      const reading = frames(res.body!);
      await reading.next();
      server.sandbox.end();
      await expect(reading.next()).rejects.toThrow();
      expect((await server.fetch('/health')).status).toBe(502);
    });

    test('breaks a download off', async () => {
      writeFileSync(at('endless'), Buffer.alloc(64 * 1024 * 1024));
      const res = await server.fetch(fileUrl('endless'), { headers: { 'accept-encoding': 'identity' } });
      const reader = res.body!.getReader();
      await reader.read();
      server.sandbox.end();
      await expect(
        (async () => {
          while (!(await reader.read()).done);
        })(),
      ).rejects.toThrow();
    });
  });

  function target() {
    const { id } = server.sandbox.row;
    return {
      baseUrl: server.url,
      interceptors: [
        (next: (req: never) => Promise<never>) => (req: { header: Headers }) => {
          req.header.set('e2b-sandbox-id', id);
          req.header.set('e2b-sandbox-port', '49983');
          return next(req as never);
        },
      ] as never,
    };
  }

  /** fetch takes gzip off by itself; this shows what is on the wire. */
  async function rawGet(path: string, headers: Record<string, string>) {
    const req = http.get(`${server.url}${path}`, {
      headers: { 'e2b-sandbox-id': server.sandbox.row.id, 'e2b-sandbox-port': '49983', ...headers },
    });
    const [res] = (await once(req, 'response')) as [http.IncomingMessage];
    const chunks: Buffer[] = [];
    for await (const chunk of res) chunks.push(chunk);
    return { status: res.statusCode, headers: res.headers, body: Buffer.concat(chunks) };
  }
});

function sha256(data: Buffer): string {
  return createHash('sha256').update(data).digest('hex');
}
