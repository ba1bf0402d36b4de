import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { gzipSync } from 'node:zlib';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from '@connectrpc/connect-node';
import { describe, expect, it } from 'vitest';
import { Filesystem, StatRequestSchema, StatResponseSchema } from '../../proto/gen/filesystem_pb.js';
import { Process } from '../../proto/gen/process_pb.js';
import { allFrames, frame, frames as framesOf } from '../support/connect-frames.ts';
import { describeRaw, errorOf, outcomeOf, type RawSandbox } from '../support/raw.ts';

type Body = NonNullable<RequestInit['body']>;

const START = { process: { cmd: '/bin/bash', args: ['-c', 'echo hi'] }, stdin: false };

describeRaw('Connect protocol', (sandbox) => {
  const post = (path: string, body: Body, headers: Record<string, string>) =>
    sandbox().fetch(path, { method: 'POST', body, headers });
  const postJson = (path: string, body: string, headers: Record<string, string> = {}) =>
    post(path, body, { 'content-type': 'application/json', 'connect-protocol-version': '1', ...headers });

  describe('unary calls', () => {
    it('answer JSON with JSON', async () => {
      const response = await postJson('/filesystem.Filesystem/Stat', '{"path":"/etc/hostname"}');
      expect(response.status).toBe(200);
      expect(response.headers.get('content-type')).toBe('application/json');
      const { entry } = (await response.json()) as { entry: Record<string, unknown> };
      // int64 is a string, enums are names, times are RFC 3339, what is empty is left out.
      expect(entry).toMatchObject({ name: 'hostname', path: '/etc/hostname', type: 'FILE_TYPE_FILE' });
      expect(entry['size']).toMatch(/^\d+$/);
      expect(entry['modifiedTime']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
      expect(entry).not.toHaveProperty('symlinkTarget');
      expect(entry).not.toHaveProperty('metadata');
    });

    it('take names in either case, numbers for enums and unknown fields', async () => {
      const made = await sandbox().ask('filesystem.Filesystem/CreateWatcher', { path: '/tmp', include_entry: true });
      const answer = await sandbox().call('filesystem.Filesystem/RemoveWatcher', {
        watcher_id: made['watcherId'],
        unheard_of: [1, { two: 3 }],
      });
      expect(answer).toMatchObject({ status: 200, body: {} });
      const pid = await sandbox().start('exec sleep 20');
      const killed = await sandbox().call('process.Process/SendSignal', { process: { pid }, signal: 9 });
      expect(killed.status).toBe(200);
    });

    it('give errors as status and JSON', async () => {
      const response = await postJson('/filesystem.Filesystem/Stat', '{"path":"/missing"}');
      expect(response.status).toBe(404);
      expect(response.headers.get('content-type')).toBe('application/json');
      expect(await response.json()).toEqual({
        code: 'not_found',
        message: 'file not found: lstat /missing: no such file or directory',
      });
    });

    it('accept a compressed body', async () => {
      const body = gzipSync('{"path":"/etc/hostname"}');
      const headers = { 'content-type': 'application/json', 'connect-protocol-version': '1' };
      const response = await post('/filesystem.Filesystem/Stat', body, { ...headers, 'content-encoding': 'gzip' });
      expect(response.status).toBe(200);
      await response.body?.cancel();
      const unknown = await post('/filesystem.Filesystem/Stat', body, { ...headers, 'content-encoding': 'br' });
      expect(unknown.status).toBe(501);
      expect(((await unknown.json()) as { code: string }).code).toBe('unimplemented');
    });
  });

  describe('what is wrong with a request', () => {
    it.each([
      ['nothing', undefined],
      ['another version', '2'],
      ['nonsense', 'one'],
    ])('Connect-Protocol-Version says %s', async (_name, version) => {
      const headers = { 'content-type': 'application/json', ...(version && { 'connect-protocol-version': version }) };
      const response = await post('/process.Process/List', '{}', headers);
      expect(response.status).toBe(400);
      const body = (await response.json()) as { code: string; message: string };
      expect(body.code).toBe('invalid_argument');
      expect(body.message).toMatch(/connect-protocol-version/i);
      const stream = await post('/process.Process/Start', frame(START), {
        'content-type': 'application/connect+json',
        ...(version && { 'connect-protocol-version': version }),
      });
      expect(stream.status).toBe(200);
      expect(await stream.text()).toMatch(/invalid_argument.*connect-protocol-version/i);
      expect(await sandbox().goesOn()).toBe(true);
    });

    it.each([
      ['not JSON', '{"path":'],
      ['a wrong type', '{"path":5}'],
      ['a list', '[]'],
      ['a bare word', 'null'],
      ['a number out of range', '{"path":"/","depth":4294967296}', '/filesystem.Filesystem/ListDir'],
      ['a negative number', '{"path":"/","depth":-1}', '/filesystem.Filesystem/ListDir'],
      ['bad base64', '{"process":{"pid":1},"input":{"stdin":"%%%"}}', '/process.Process/SendInput'],
    ])('the message is %s', async (_name, body, path = '/filesystem.Filesystem/Stat') => {
      const response = await postJson(path, body);
      expect(response.status).toBe(400);
      expect(((await response.json()) as { code: string }).code).toBe('invalid_argument');
    });

    it.each(['text/plain', 'application/xml', 'application/connect+json', 'application/connect+yaml'])(
      'the content type of a unary call is %s',
      async (type) => {
        const response = await post('/filesystem.Filesystem/Stat', '{"path":"/"}', {
          'content-type': type,
          'connect-protocol-version': '1',
        });
        expect(response.status).toBe(415);
        await response.body?.cancel();
      },
    );

    it('the content type of a stream is that of a unary call', async () => {
      const response = await postJson('/process.Process/Start', JSON.stringify(START));
      expect(response.status).toBe(415);
      await response.body?.cancel();
    });

    it('the method is not POST', async () => {
      for (const method of ['GET', 'PUT', 'DELETE']) {
        const response = await sandbox().fetch('/process.Process/List', { method });
        expect(response.status).toBe(405);
        await response.body?.cancel();
      }
    });

    it('the path names no call', async () => {
      for (const path of [
        '/process.Process/Nothing',
        '/process.Process',
        '/nothing.Nothing/List',
        '/',
        '/favicon.ico',
      ]) {
        const response = await postJson(path, '{}');
        expect(response.status).toBe(404);
        expect(await response.json()).toMatchObject({ code: 404 });
      }
    });

    it.each(['abc', '-5', '1.5', '12345678901'])('Connect-Timeout-Ms is %s', async (timeout) => {
      const response = await postJson('/process.Process/List', '{}', { 'connect-timeout-ms': timeout });
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({ code: 'invalid_argument' });
    });
  });

  describe('frames', () => {
    const startWith = async (body: Buffer) => {
      const response = await post('/process.Process/Start', body, {
        'content-type': 'application/connect+json',
        'connect-protocol-version': '1',
      });
      return { status: response.status, frames: await allFrames(response) };
    };
    const header = (flags: number, length: number) => {
      const bytes = Buffer.alloc(5);
      bytes[0] = flags;
      bytes.writeUInt32BE(length, 1);
      return bytes;
    };

    it('carry start, data, end and the end of the stream, in that order', async () => {
      const { status, frames } = await startWith(frame(START));
      expect(status).toBe(200);
      expect(frames.map((one) => Object.keys((one.message['event'] as object | undefined) ?? {})[0])).toEqual([
        'start',
        'data',
        'end',
        undefined,
      ]);
      expect(frames.at(-1)).toEqual({ flags: 2, message: {} });
      expect(outcomeOf(frames)).toMatchObject({ stdout: 'hi\n', end: { exited: true, status: 'exit status 0' } });
      // proto3 JSON leaves out what is zero.
      expect(outcomeOf(frames).end).not.toHaveProperty('exitCode');
      expect(outcomeOf(frames).end).not.toHaveProperty('error');
    });

    it.each([
      ['nothing at all', Buffer.alloc(0)],
      ['half a header', Buffer.from([0, 0, 0])],
      ['a header without its message', header(0, 10)],
      ['half a message', Buffer.concat([header(0, 100), Buffer.from('{"process":')])],
      ['a message that is not JSON', Buffer.concat([header(0, 3), Buffer.from('{"p')])],
      ['two messages where one belongs', Buffer.concat([frame(START), frame(START)])],
      ['a compressed message without saying how', Buffer.concat([header(1, 3), Buffer.from('abc')])],
      ['an end where a message belongs', frame({}, 2)],
      ['flags that mean nothing', Buffer.concat([header(0x80, 2), Buffer.from('{}')])],
      ['a length of four gigabytes', Buffer.concat([header(0, 0xffffffff), Buffer.from('{}')])],
      ['a length over the limit', Buffer.concat([header(0, 65 * 1024 * 1024), Buffer.from('{}')])],
    ])('that are %s end the stream with an error', async (_name, body) => {
      const { status, frames } = await startWith(body);
      expect(status).toBe(200);
      const error = errorOf(frames);
      expect(error?.['code']).toMatch(/^(invalid_argument|resource_exhausted|unimplemented|internal)$/);
      expect(error?.['code']).not.toBe('internal');
      expect(await sandbox().goesOn()).toBe(true);
    });

    it('may be compressed when the request says so', async () => {
      const packed = gzipSync(JSON.stringify(START));
      const response = await post('/process.Process/Start', Buffer.concat([header(1, packed.length), packed]), {
        'content-type': 'application/connect+json',
        'connect-protocol-version': '1',
        'connect-content-encoding': 'gzip',
        'connect-accept-encoding': 'gzip',
      });
      // The answer is not: a stream must not wait for a block to fill.
      const frames = await allFrames(response);
      expect(frames.every(({ flags }) => (flags & 1) === 0)).toBe(true);
      expect(outcomeOf(frames).stdout).toBe('hi\n');
    });

    it('are refused when compressed so that they swell over the limit', async () => {
      const bomb = gzipSync(Buffer.alloc(200 * 1024 * 1024, ' '));
      const response = await post('/process.Process/Start', Buffer.concat([header(1, bomb.length), bomb]), {
        'content-type': 'application/connect+json',
        'connect-protocol-version': '1',
        'connect-content-encoding': 'gzip',
      });
      expect(await response.text()).toContain('resource_exhausted');
      expect(await sandbox().goesOn()).toBe(true);
    });

    it('may come one byte at a time', async () => {
      const bytes = frame(START);
      const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
        const request = http.request(
          `${sandbox().service.url}/process.Process/Start`,
          {
            method: 'POST',
            headers: {
              ...sandbox().headers,
              'content-type': 'application/connect+json',
              'connect-protocol-version': '1',
            },
          },
          resolve,
        );
        request.on('error', reject);
        const send = (index: number) => {
          if (index === bytes.length) return request.end();
          request.write(bytes.subarray(index, index + 1), () => setImmediate(send, index + 1));
        };
        send(0);
      });
      expect(outcomeOf(await Array.fromAsync(framesOf(response))).stdout).toBe('hi\n');
    });

    it('errors come in the last one, the status being 200', async () => {
      const frames = await sandbox().stream('process.Process/Start', {
        process: { cmd: '/bin/true', cwd: '/no/such' },
      });
      expect(frames).toEqual([
        { flags: 2, message: { error: { code: 'invalid_argument', message: "cwd '/no/such' does not exist" } } },
      ]);
    });
  });

  describe('sizes', () => {
    it('a body over the limit is refused and the connection lives', async () => {
      const response = await postJson(
        '/filesystem.Filesystem/Stat',
        JSON.stringify({ path: 'x'.repeat(66 * 1024 * 1024) }),
      );
      expect(response.status).toBe(429);
      expect(await response.json()).toMatchObject({ code: 'resource_exhausted' });
      expect(await sandbox().goesOn()).toBe(true);
    });

    it('input of many megabytes is taken in one message', async () => {
      const file = '/tmp/large-input';
      const pid = await sandbox().start(`cat > ${file}`, { stdin: true });
      const input = { stdin: Buffer.alloc(20 * 1024 * 1024, 'i').toString('base64') };
      await sandbox().ask('process.Process/SendInput', { process: { pid }, input });
      await sandbox().ask('process.Process/CloseStdin', { process: { pid } });
      await expect.poll(async () => (await sandbox().run(`wc -c < ${file}`)).stdout.trim()).toBe('20971520');
    });

    it('headers that are too large are refused with 431', async () => {
      const answer = await rawExchange(
        sandbox(),
        `GET /health HTTP/1.1\r\nHost: localhost\r\nX-Large: ${'a'.repeat(100_000)}\r\n\r\n`,
      );
      expect(answer).toMatch(/^HTTP\/1\.1 431 /);
      expect(await sandbox().goesOn()).toBe(true);
    });

    it('a path of many kilobytes is an ordinary error', async () => {
      const answer = await sandbox().call('filesystem.Filesystem/Stat', { path: `/${'x'.repeat(100_000)}` });
      expect(answer.status).toBeGreaterThanOrEqual(400);
      expect(answer.body['code']).toMatch(/invalid_argument|internal|not_found/);
    });
  });

  describe('other encodings', () => {
    it('binary messages over Connect', async () => {
      const response = await post(
        '/filesystem.Filesystem/Stat',
        toBinary(StatRequestSchema, create(StatRequestSchema, { path: '/etc' })) as Body,
        { 'content-type': 'application/proto', 'connect-protocol-version': '1' },
      );
      expect(response.status).toBe(200);
      expect(response.headers.get('content-type')).toBe('application/proto');
      const { entry } = fromBinary(StatResponseSchema, new Uint8Array(await response.arrayBuffer()));
      expect(entry?.path).toBe('/etc');
      const broken = await post('/filesystem.Filesystem/Stat', new Uint8Array([0xff, 0xff, 0xff]), {
        'content-type': 'application/proto',
        'connect-protocol-version': '1',
      });
      expect(broken.status).toBe(500);
      expect(await broken.json()).toMatchObject({ message: expect.stringMatching(/^parse binary/) });
    });

    const transports = {
      'Connect, JSON': (options: { baseUrl: string; httpVersion: '1.1' | '2' }) =>
        createConnectTransport({ ...options, useBinaryFormat: false }),
      'Connect, binary': (options: { baseUrl: string; httpVersion: '1.1' | '2' }) =>
        createConnectTransport({ ...options, useBinaryFormat: true }),
      'gRPC-web': (options: { baseUrl: string; httpVersion: '1.1' | '2' }) => createGrpcWebTransport(options),
      gRPC: (options: { baseUrl: string; httpVersion: '1.1' | '2' }) => createGrpcTransport(options),
    };
    it.each([
      ['Connect, JSON', '1.1'],
      ['Connect, JSON', '2'],
      ['Connect, binary', '1.1'],
      ['Connect, binary', '2'],
      ['gRPC-web', '1.1'],
      ['gRPC-web', '2'],
      ['gRPC', '2'],
    ] as const)('%s over HTTP/%s', async (name, httpVersion) => {
      const transport = transports[name]({ baseUrl: sandbox().service.url, httpVersion });
      const options = { headers: sandbox().headers };
      const files = createClient(Filesystem, transport);
      const processes = createClient(Process, transport);
      expect((await files.stat({ path: '/etc' }, options)).entry?.name).toBe('etc');
      await expect(files.stat({ path: '/missing' }, options)).rejects.toMatchObject({ code: Code.NotFound });
      const output: Buffer[] = [];
      let ended = false;
      for await (const { event } of processes.start(
        { process: { cmd: '/bin/bash', args: ['-c', 'seq 1 30000'] }, stdin: false },
        options,
      )) {
        if (event?.event.case === 'data') output.push(Buffer.from(event.event.value.output.value ?? []));
        if (event?.event.case === 'end') ended = true;
      }
      expect(ended).toBe(true);
      expect(Buffer.concat(output).toString().endsWith('\n30000\n')).toBe(true);
      const failing = processes.start({ process: { cmd: '/bin/true', cwd: '/no' } }, options);
      const error = await Array.fromAsync(failing).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(ConnectError);
      expect((error as ConnectError).code).toBe(Code.InvalidArgument);
      const timeout = processes.start({ process: { cmd: '/bin/sleep', args: ['9'] } }, { ...options, timeoutMs: 400 });
      await expect(Array.fromAsync(timeout)).rejects.toMatchObject({ code: Code.DeadlineExceeded });
    });
  });

  describe('connections', () => {
    it.each([
      ['noise', Buffer.from(Array.from({ length: 500 }, (_, index) => (index * 37) % 256))],
      ['a broken request line', Buffer.from('GET\r\n\r\n')],
      [
        'a request cut off',
        Buffer.from('POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc'),
      ],
      ['a bad chunk', Buffer.from('POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n')],
      ['two lengths', Buffer.from('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab')],
      ['half of HTTP/2', Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense that is no frame at all')],
    ])('that bring %s harm nobody', async (_name, bytes) => {
      await rawExchange(sandbox(), bytes);
      expect(await sandbox().goesOn()).toBe(true);
    });

    it('in clear text may speak HTTP/2 at once', async () => {
      const session = http2.connect(sandbox().service.url);
      const stream = session.request({ ':path': '/health', ...sandbox().headers });
      const status = await new Promise((resolve, reject) => {
        stream.on('response', (headers) => resolve(headers[':status']));
        stream.on('error', reject);
      });
      expect(status).toBe(204);
      session.close();
    });
  });
});

/** Sends bytes on a connection of their own and gives whatever comes back until it is closed, or for a second. */
function rawExchange(sandbox: RawSandbox, bytes: string | Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(sandbox.service.port, '127.0.0.1');
    let answer = '';
    const done = () => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(1000, done);
    socket.on('data', (chunk) => {
      answer += chunk.toString('latin1');
    });
    socket.on('close', done);
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ECONNRESET' && error.code !== 'EPIPE') reject(error);
    });
    socket.write(bytes);
  });
}
