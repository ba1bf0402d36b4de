// A program with a port in a sandbox: echoes, streams, WebSockets on 3000; gRPC in clear text on 3001; the same over TLS on 3002 and 3003.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';

function answer(req, res) {
  const url = new URL(req.url, 'http://x');
  const number = (name) => Number(url.searchParams.get(name));
  if (url.pathname === '/bytes') return bytes(res, number('n'));
  if (url.pathname === '/sink') return sink(req, res);
  if (url.pathname === '/wait') return void setTimeout(() => res.end(url.searchParams.get('id')), number('ms'));
  if (url.pathname === '/events') {
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    let count = 0;
    const timer = setInterval(() => res.write(`data: ${Date.now()} ${count++}\n\n`), 20);
    return void res.on('close', () => clearInterval(timer));
  }
  if (url.pathname === '/page') {
    res.setHeader('content-type', 'text/html');
    return void res.end(PAGE);
  }
  res.setHeader('content-type', 'application/json');
  res.end(JSON.stringify({ url: req.url, headers: req.headers }));
}

/** Numbered blocks, so that nothing can be lost, doubled or moved without the sum being wrong. */
function bytes(res, count) {
  const block = Buffer.alloc(64 * 1024);
  let left = count;
  let index = 0;
  res.setHeader('content-length', count);
  const more = () => {
    while (left > 0) {
      block.writeUInt32BE(index++, 0);
      const size = Math.min(left, block.length);
      left -= size;
      if (!res.write(Buffer.from(block.subarray(0, size)))) return void res.once('drain', more);
    }
    res.end();
  };
  more();
}

function sink(req, res) {
  const hash = createHash('sha256');
  let count = 0;
  req.on('data', (chunk) => {
    hash.update(chunk);
    count += chunk.length;
  });
  req.on('end', () => res.end(JSON.stringify({ count, hash: hash.digest('hex') })));
}

/** A WebSocket that sends every message back (RFC 6455, messages below 64 kB). */
function webSocket(req, socket, head) {
  const accept = createHash('sha1').update(`${req.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept.digest('base64')}\r\n\r\n`,
  );
  socket.on('error', () => socket.destroy());
  let unread = head;
  const take = (chunk) => {
    unread = Buffer.concat([unread, chunk]);
    for (;;) {
      if (unread.length < 6) return;
      let length = unread[1] & 127;
      let at = 2;
      if (length === 126) {
        if (unread.length < 8) return;
        length = unread.readUInt16BE(2);
        at = 4;
      }
      if (unread.length < at + 4 + length) return;
      const mask = unread.subarray(at, at + 4);
      const body = Buffer.from(unread.subarray(at + 4, at + 4 + length).map((byte, index) => byte ^ mask[index % 4]));
      const opcode = unread[0] & 15;
      unread = unread.subarray(at + 4 + length);
      if (opcode === 8) return void socket.end(Buffer.from([0x88, 0]));
      const size =
        body.length < 126 ? Buffer.from([body.length]) : Buffer.from([126, body.length >> 8, body.length & 255]);
      socket.write(Buffer.concat([Buffer.from([0x80 | opcode]), size, body]));
    }
  };
  take(Buffer.alloc(0));
  socket.on('data', take);
}

/** Every message of a call goes back on it; the status comes in trailers. */
function grpc(stream, headers) {
  stream.on('error', () => stream.close());
  stream.respond(
    { ':status': 200, 'content-type': 'application/grpc', 'x-path': headers[':path'] },
    { waitForTrailers: true },
  );
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', 'grpc-message': 'fine' }));
  stream.pipe(stream);
}

const PAGE = `<!doctype html><title>In a sandbox</title><p id=state>loading</p><script>
const socket = new WebSocket('wss://' + location.host + '/socket');
socket.onopen = () => socket.send('from the page');
socket.onmessage = (event) => { document.getElementById('state').textContent = 'echo: ' + event.data; };
socket.onerror = () => { document.getElementById('state').textContent = 'failed'; };
</script>`;

execFileSync('openssl', [
  ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', '/tmp/key.pem', '-out', '/tmp/cert.pem'],
  ...['-days', '1', '-subj', '/CN=anything'],
]);
const tls = { key: readFileSync('/tmp/key.pem'), cert: readFileSync('/tmp/cert.pem') };
http.createServer(answer).on('upgrade', webSocket).listen(3000, '0.0.0.0');
http2.createServer().on('stream', grpc).listen(3001, '0.0.0.0');
https.createServer(tls, answer).on('upgrade', webSocket).listen(3002, '0.0.0.0');
http2.createSecureServer(tls).on('stream', grpc).listen(3003, '0.0.0.0');
http.createServer(answer).listen(3004, '127.0.0.1', () => console.log('ready'));
