import { createSocket } from 'node:dgram';
import { readFileSync } from 'node:fs';
import { createServer as createHttp, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createHttps } from 'node:https';
import { connect, createServer as createTcp, type Socket } from 'node:net';
import path from 'node:path';
import type { Duplex } from 'node:stream';

// The servers of the test internet, on every address of its namespace. Run by internet.ts; ends when its input ends.

const directory = process.argv[2] as string;
const PASSWORD = { username: 'user', password: 'pass' };

let zone: Record<string, string[] | string[][]> = {};
const asked = new Map<string, number>();
let queries: string[] = [];
let proxied: string[] = [];
let datagrams: string[] = [];

/** Says what arrived: at which address, for which host, with which headers. */
const echo: RequestListener = (req, res) => {
  const url = new URL(req.url ?? '/', 'http://x');
  if (url.pathname === '/redirect')
    return void res.writeHead(302, { location: url.searchParams.get('to') ?? '/' }).end();
  if (url.pathname === '/bytes') return sendBytes(res, Number(url.searchParams.get('n')));
  if (url.pathname === '/sink') return countBytes(req, res);
  if (url.pathname === '/events') return sendEvents(res);
  res.setHeader('content-type', 'application/json');
  res.end(
    JSON.stringify({
      at: req.socket.localAddress,
      port: req.socket.localPort,
      from: req.socket.remoteAddress,
      url: req.url,
      headers: req.headers,
    }),
  );
};

function sendBytes(res: ServerResponse, count: number): void {
  const piece = Buffer.alloc(256 * 1024, 'x');
  res.setHeader('content-length', count);
  let left = count;
  const more = () => {
    while (left > 0) {
      const next = piece.subarray(0, Math.min(piece.length, left));
      left -= next.length;
      if (!res.write(next)) return void res.once('drain', more);
    }
    res.end();
  };
  more();
}

function countBytes(req: IncomingMessage, res: ServerResponse): void {
  let count = 0;
  req.on('data', (chunk: Buffer) => {
    count += chunk.length;
  });
  req.on('end', () => res.end(String(count)));
}

/** A byte a tenth of a second, until the other side leaves: a connection that can be watched being cut. */
function sendEvents(res: ServerResponse): void {
  res.writeHead(200, { 'content-type': 'text/event-stream' });
  const timer = setInterval(() => res.write('data: x\n\n'), 100);
  res.on('close', () => clearInterval(timer));
}

/** Any protocol: the bytes come back. */
function upgradeEcho(_req: IncomingMessage, socket: Duplex, head: Buffer): void {
  socket.on('error', () => socket.destroy());
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
  socket.write(head);
  socket.pipe(socket);
}

const control: RequestListener = (req, res) => {
  let body = '';
  req.on('data', (chunk) => {
    body += chunk;
  });
  req.on('end', () => {
    const answer = { '/queries': queries, '/proxied': proxied, '/datagrams': datagrams }[req.url ?? ''] ?? [];
    if (req.url === '/zone') {
      zone = JSON.parse(body);
      asked.clear();
    }
    if (req.url === '/queries') queries = [];
    if (req.url === '/proxied') proxied = [];
    if (req.url === '/datagrams') datagrams = [];
    res.end(JSON.stringify(answer));
  });
};

function addressesOf(name: string): string[] {
  const found = zone[name] ?? zone[`*.${name.split('.').slice(1).join('.')}`] ?? [];
  const [first] = found;
  if (!Array.isArray(first)) return found as string[];
  const turn = asked.get(name) ?? 0;
  asked.set(name, turn + 1);
  return (found as string[][])[Math.min(turn, found.length - 1)] ?? [];
}

/** Answers A questions from the zone, all others with nothing. */
function answerDns(query: Buffer): Buffer {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.subarray(at + 1, at + 1 + length).toString());
    at += 1 + length;
  }
  const end = at + 5;
  const isA = query.readUInt16BE(at + 1) === 1;
  const name = labels.join('.').toLowerCase();
  if (isA) queries.push(name);
  const addresses = isA ? addressesOf(name) : [];
  const known = name in zone || `*.${name.split('.').slice(1).join('.')}` in zone;
  const head = Buffer.from(query.subarray(0, end));
  head.writeUInt16BE(known ? 0x8180 : 0x8183, 2);
  for (const [place, count] of [
    [4, 1],
    [6, addresses.length],
    [8, 0],
    [10, 0],
  ] as const)
    head.writeUInt16BE(count, place);
  // Name by pointer, type A, class IN, no time to live, four bytes.
  const records = addresses.map((address) =>
    Buffer.concat([Buffer.from('c00c00010001000000000004', 'hex'), Buffer.from(address.split('.').map(Number))]),
  );
  return Buffer.concat([head, ...records]);
}

function serveDnsTcp(socket: Socket): void {
  let unread: Buffer = Buffer.alloc(0);
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk) => {
    unread = Buffer.concat([unread, chunk]);
    while (unread.length >= 2 && unread.length >= 2 + unread.readUInt16BE(0)) {
      const length = unread.readUInt16BE(0);
      const answer = answerDns(unread.subarray(2, 2 + length));
      unread = unread.subarray(2 + length);
      const size = Buffer.alloc(2);
      size.writeUInt16BE(answer.length, 0);
      socket.write(Buffer.concat([size, answer]));
    }
  });
}

/** A SOCKS5 server (RFC 1928) that wants a password and finds names itself, in the zone. */
async function serveSocks(socket: Socket): Promise<void> {
  socket.on('error', () => socket.destroy());
  const read = (count: number): Promise<Buffer> =>
    new Promise((resolve) => {
      const look = () => {
        const bytes: Buffer | null = socket.read(count);
        if (bytes === null) return void socket.once('readable', look);
        resolve(bytes);
      };
      look();
    });
  const [, methods = 0] = await read(2);
  if (!(await read(methods)).includes(2)) return void socket.end(Buffer.from([5, 255]));
  socket.write(Buffer.from([5, 2]));
  const [, userLength = 0] = await read(2);
  const username = (await read(userLength)).toString();
  const [passwordLength = 0] = await read(1);
  const password = (await read(passwordLength)).toString();
  if (username !== PASSWORD.username || password !== PASSWORD.password) return void socket.end(Buffer.from([1, 1]));
  socket.write(Buffer.from([1, 0]));
  const [, , , kind] = await read(4);
  const [nameLength = 0] = kind === 3 ? await read(1) : [];
  const target = kind === 3 ? (await read(nameLength)).toString() : [...(await read(4))].join('.');
  const port = (await read(2)).readUInt16BE(0);
  proxied.push(`${username}@${target}:${port}`);
  const address = kind === 3 ? (addressesOf(target)[0] ?? '') : target;
  if (address === '') return void socket.end(Buffer.from([5, 4, 0, 1, 0, 0, 0, 0, 0, 0]));
  const upstream = connect(port, address, () => {
    socket.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
    socket.pipe(upstream).pipe(socket);
  });
  upstream.on('error', () => socket.destroy());
}

function noted(message: Buffer, from: string): Buffer {
  datagrams.push(`${from} ${message.toString('latin1')}`);
  return message;
}

const tls = {
  cert: readFileSync(path.join(directory, 'cert.pem')),
  key: readFileSync(path.join(directory, 'key.pem')),
};
const tcpEcho = createTcp({ allowHalfOpen: true }, (socket) => {
  socket.on('error', () => socket.destroy());
  socket.pipe(socket);
});
const greeting = createTcp((socket) => {
  socket.on('error', () => socket.destroy());
  socket.write('SSH-2.0-test\r\n');
  socket.pipe(socket);
});
const servers: [number, { listen(port: number, host: string, done: () => void): void }][] = [
  [80, createHttp(echo).on('upgrade', upgradeEcho)],
  [8080, createHttp(echo).on('upgrade', upgradeEcho)],
  [443, createHttps(tls, echo).on('upgrade', upgradeEcho)],
  [8443, createHttps(tls, echo).on('upgrade', upgradeEcho)],
  [7, tcpEcho],
  [22, greeting],
  [53, createTcp(serveDnsTcp)],
  [1080, createTcp((socket) => void serveSocks(socket))],
  [9000, createHttp(control)],
];
await Promise.all(servers.map(([port, server]) => new Promise<void>((done) => server.listen(port, '0.0.0.0', done))));

// UDP answers must come from the address that was asked, so each has a socket of its own.
const addresses = (process.env['ADDRESSES'] ?? '').split(',').filter(Boolean);
for (const [port, answer] of [
  [53, answerDns],
  [7, noted],
] as const) {
  for (const address of addresses) {
    const socket = createSocket('udp4');
    socket.on('error', () => undefined);
    socket.on('message', (message, from) => socket.send(answer(message, from.address), from.port, from.address));
    await new Promise<void>((done) => socket.bind(port, address, done));
  }
}
console.log('ready');
process.stdin.on('end', () => process.exit(0)).resume();
