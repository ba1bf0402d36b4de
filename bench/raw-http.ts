import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

const MIB = 1024 * 1024;

export interface Address {
  port: number;
  /** With its query. */
  path: string;
  headers?: Record<string, string>;
}

/** Sends so many megabytes by the leanest client Node has, so that what is measured is the server. */
export async function sendBytes(method: string, { port, path, headers }: Address, megabytes: number): Promise<void> {
  const request = http.request({
    host: '127.0.0.1',
    port,
    path,
    method,
    headers: { ...headers, ...lengthOf(megabytes) },
  });
  const answered = once(request, 'response') as Promise<[http.IncomingMessage]>;
  const [[response]] = await Promise.all([answered, pipeline(Readable.from(blocks(megabytes)), request)]);
  await receive(response);
}

/** Fetches so many megabytes, and not a byte less. */
export async function fetchBytes({ port, path, headers }: Address, megabytes: number): Promise<void> {
  const request = http.get({ host: '127.0.0.1', port, path, ...(headers !== undefined && { headers }) });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  const received = await receive(response);
  if (received !== megabytes * MIB) throw new Error(`${received} bytes came`);
}

async function receive(response: http.IncomingMessage): Promise<number> {
  let received = 0;
  response.on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  await once(response, 'end');
  const status = response.statusCode ?? 0;
  if (status < 200 || status > 299) throw new Error(`the server answers ${status}`);
  return received;
}

function lengthOf(megabytes: number): Record<string, string> {
  return { 'content-type': 'application/octet-stream', 'content-length': String(megabytes * MIB) };
}

function* blocks(count: number): Generator<Buffer> {
  const block = randomBytes(MIB);
  for (let sent = 0; sent < count; sent++) yield block;
}
