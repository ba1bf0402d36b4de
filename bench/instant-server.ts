import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

// A program of its own: answers what the official client asks for a create, a command and a kill at once, with nothing behind it.

const SANDBOX = JSON.stringify({
  templateID: 'base',
  sandboxID: 'i00000000000000000000',
  alias: 'base',
  clientID: 'none',
  envdVersion: '0.4.0',
  envdAccessToken: 'none',
});
const EVENTS = Buffer.concat([
  envelope(0, { event: { start: { pid: 1 } } }),
  envelope(0, { event: { end: { exited: true, status: 'exit status 0' } } }),
  envelope(2, {}),
]);

function envelope(flags: number, message: object): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  const head = Buffer.from([flags, 0, 0, 0, 0]);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

const server = createServer((req, res) => {
  req.resume().on('end', () => {
    if (req.url?.startsWith('/process.Process/'))
      res.writeHead(200, { 'content-type': 'application/connect+json' }).end(EVENTS);
    else if (req.method === 'DELETE') res.writeHead(204).end();
    else res.writeHead(201, { 'content-type': 'application/json' }).end(SANDBOX);
  });
});
server.listen(0, '127.0.0.1', () => console.log((server.address() as AddressInfo).port));
