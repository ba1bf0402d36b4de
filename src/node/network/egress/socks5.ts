import { isIPv4, type Socket } from 'node:net';
import { formatIpv4, parseIpv4 } from '../addresses.ts';
import type { SocksServer } from '../policy.ts';

const VERSION = 5;
const NO_AUTHENTICATION = 0;
const PASSWORD = 2;
const CONNECT = 1;
const IPV4 = 1;
const DOMAIN = 3;
const IPV6 = 4;

/** The refusals of RFC 1928 §6, by code. */
const refusals = [
  '',
  'general failure',
  'not allowed by its rules',
  'network unreachable',
  'host unreachable',
  'connection refused',
  'time to live expired',
  'command not supported',
  'address type not supported',
];

/** Asks a SOCKS5 server (RFC 1928, RFC 1929), over a connection to it, for a connection to a name or an IPv4 address. */
export async function connectThrough(
  socket: Socket,
  server: Pick<SocksServer, 'username' | 'password'>,
  host: string,
  port: number,
): Promise<void> {
  const read = reader(socket);
  const methods = server.username === '' ? [NO_AUTHENTICATION] : [NO_AUTHENTICATION, PASSWORD];
  socket.write(Buffer.from([VERSION, methods.length, ...methods]));
  const [version, method] = await read(2);
  if (version !== VERSION) throw new Error('the egress proxy does not speak SOCKS5');
  if (method === PASSWORD && server.username !== '') await authenticate(socket, read, server);
  else if (method !== NO_AUTHENTICATION) throw new Error('the egress proxy accepts none of our ways to log in');

  socket.write(Buffer.concat([Buffer.from([VERSION, CONNECT, 0]), addressOf(host), portOf(port)]));
  const [, status = 1, , kind] = await read(4);
  if (status !== 0) throw new Error(`the egress proxy refused: ${refusals[status] ?? `code ${status}`}`);
  // The address it uses itself, which tells us nothing.
  const length = kind === IPV4 ? 4 : kind === IPV6 ? 16 : kind === DOMAIN ? ((await read(1))[0] ?? 0) : undefined;
  if (length === undefined) throw new Error('the egress proxy gave an answer that is not SOCKS5');
  await read(length + 2);
}

async function authenticate(
  socket: Socket,
  read: (count: number) => Promise<Buffer>,
  { username, password }: Pick<SocksServer, 'username' | 'password'>,
): Promise<void> {
  socket.write(Buffer.concat([Buffer.from([1]), counted(username), counted(password)]));
  const [, status] = await read(2);
  if (status !== 0) throw new Error('the egress proxy refused the username and password');
}

function addressOf(host: string): Buffer {
  if (!isIPv4(host)) return Buffer.concat([Buffer.from([DOMAIN]), counted(host)]);
  const octets = formatIpv4(parseIpv4(host)).split('.').map(Number);
  return Buffer.from([IPV4, ...octets]);
}

function counted(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8');
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
}

function portOf(port: number): Buffer {
  return Buffer.from([port >> 8, port & 255]);
}

/** Reads exactly so many bytes; what comes after them stays in the socket. */
function reader(socket: Socket): (count: number) => Promise<Buffer> {
  return (count) =>
    new Promise((resolve, reject) => {
      const settle = (act: () => void) => {
        socket.off('readable', look);
        socket.off('close', onClose);
        socket.off('end', onClose);
        act();
      };
      const look = () => {
        const bytes: Buffer | null = socket.read(count);
        if (bytes !== null) settle(() => resolve(bytes));
      };
      const onClose = () => settle(() => reject(new Error('the egress proxy closed the connection')));
      socket.on('readable', look);
      socket.on('close', onClose);
      socket.on('end', onClose);
      look();
    });
}
