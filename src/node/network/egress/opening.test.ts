import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { openingIn, readOpening } from './opening.ts';

/** The hello that Node's own TLS sends for a name. */
async function clientHello(servername: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  const sink = new Duplex({
    read() {},
    write(chunk, _encoding, done) {
      chunks.push(chunk);
      done();
    },
  });
  const socket = connectTls({ socket: sink, servername });
  socket.on('error', () => undefined);
  await new Promise((resolve) => setTimeout(resolve, 50));
  socket.destroy();
  return Buffer.concat(chunks);
}

/** The same hello, cut into records of a few bytes. */
function refragmented(hello: Buffer, size: number): Buffer {
  const records: Buffer[] = [];
  const body = hello.subarray(5);
  for (let at = 0; at < body.length; at += size) {
    const part = body.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(records);
}

describe('a TLS hello', () => {
  test('tells its name, whole or cut into records', async () => {
    const hello = await clientHello('API.Example.com');
    expect(openingIn(hello)).toEqual({ kind: 'tls', name: 'api.example.com' });
    for (const size of [1, 7, 100]) expect(openingIn(refragmented(hello, size))?.name).toBe('api.example.com');
  });

  test('is waited for to its last byte', async () => {
    const hello = refragmented(await clientHello('example.com'), 11);
    for (let length = 1; length < hello.length; length++)
      expect(openingIn(hello.subarray(0, length)), `${length} bytes`).toBeUndefined();
  });

  test('may name nobody', async () => {
    const hello = await clientHello('');
    expect(openingIn(hello)).toEqual({ kind: 'tls', name: undefined });
  });

  test.each([
    ['another record between', Buffer.from('160301000401000100170303000100', 'hex')],
    ['not a hello', Buffer.from('1603010004020000000000', 'hex')],
    ['an empty record', Buffer.from('1603010000', 'hex')],
    ['an old version', Buffer.from('160201', 'hex')],
  ])('%s is nothing known', (_, bytes) => {
    expect(openingIn(bytes)).toEqual({ kind: 'other', name: undefined });
  });
});

describe('an HTTP request', () => {
  const http = (text: string) => openingIn(Buffer.from(text.replaceAll('\n', '\r\n'), 'latin1'));

  test('tells its host', () => {
    expect(http('GET / HTTP/1.1\nAccept: */*\nHost: Example.com:8080\n\n')).toEqual({
      kind: 'http',
      name: 'example.com',
    });
    expect(http('GET http://example.com/x HTTP/1.1\nhost:example.com\n\n')?.name).toBe('example.com');
    expect(http('GET / HTTP/1.0\n\n')).toEqual({ kind: 'http', name: undefined });
    expect(http('GET / HTTP/1.1\nHost: 203.0.113.7\n\n')).toEqual({ kind: 'http', name: undefined });
  });

  test.each([
    'G',
    'GET',
    'GET ',
    'GET /',
    'GET / HTTP/1.1',
    'GET / HTTP/1.1\nHost: a.test',
    'GET / HTTP/1.1\nHost: a.test\n',
  ])('is waited for: %j', (text) => {
    expect(http(text)).toBeUndefined();
  });

  test.each([
    'GET / HTTP/1.1\nHost: a.test\nHost: b.test\n\n',
    'GET / HTTP/1.1\nHost : a.test\n\n',
    'GET / HTTP/1.1\nHost:\n a.test\n\n',
    'GET http://b.test/ HTTP/1.1\nHost: a.test\n\n',
    'GET / HTTP/2.0\nHost: a.test\n\n',
    'PRI * HTTP/2.0\n\nSM\n\n',
    'SSH-2.0-OpenSSH_9.2\n',
    'EHLO a.test\n',
    '\u0000\u0001\u0002',
  ])('%j is nothing known', (text) => {
    expect(http(text)).toEqual({ kind: 'other', name: undefined });
  });

  test('a bare line feed is nothing known', () => {
    expect(openingIn(Buffer.from('GET / HTTP/1.1\nHost: a.test\n\n\r\n\r\n'))?.kind).toBe('other');
  });
});

describe('a connection', () => {
  const sockets: { destroy(): void }[] = [];
  afterEach(() => {
    for (const socket of sockets.splice(0)) socket.destroy();
  });

  async function pair(): Promise<{ client: Socket; served: Socket }> {
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    const served = await accepted;
    server.close();
    sockets.push(client, served);
    return { client, served };
  }

  test('is read in pieces, and what was read is kept', async () => {
    const { client, served } = await pair();
    const text = 'GET / HTTP/1.1\r\nHost: a.test\r\n\r\nbody';
    const reading = readOpening(served, { quietMs: 1000, patienceMs: 1000 });
    for (const char of text) {
      client.write(char);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const opening = await reading;
    expect(opening).toMatchObject({ kind: 'http', name: 'a.test' });
    const rest: Buffer[] = [opening.head];
    served.on('data', (chunk) => rest.push(chunk)).resume();
    client.end();
    await new Promise((resolve) => served.once('end', resolve));
    expect(Buffer.concat(rest).toString()).toBe(text);
  });

  test('that says nothing is silent, one that says too little is unknown', async () => {
    const quiet = await pair();
    expect((await readOpening(quiet.served, { quietMs: 20, patienceMs: 20 })).kind).toBe('silent');
    const slow = await pair();
    slow.client.write('GET /');
    expect((await readOpening(slow.served, { quietMs: 200, patienceMs: 20 })).kind).toBe('other');
    const ended = await pair();
    ended.client.end('GET /');
    expect((await readOpening(ended.served, { quietMs: 5000, patienceMs: 5000 })).kind).toBe('other');
  });
});
