import { randomBytes } from 'node:crypto';
import { Sandbox } from 'e2b';
import type { TestService } from '../tests/support/service.ts';
import { WHAT, WHERE } from './names.ts';
import { startNginxFiles } from './nginx.ts';
import { type Address, fetchBytes, sendBytes } from './raw-http.ts';
import type { Row } from './report.ts';
import { repeatRate } from './statistics.ts';

export interface TransferSize {
  megabytes: number;
  rounds: number;
}

const MIB = 1024 * 1024;
const FILE = '/home/user/large';

/** A large file into a sandbox and out of it: over bare HTTP, as it is set against nginx, and through the official client. */
export async function measureTransfer(service: TestService, where: string, size: TransferSize): Promise<Row[]> {
  const sandbox = await Sandbox.create({ ...service.connection, timeoutMs: 3_600_000 });
  try {
    const at = (url: string): Address => {
      const { pathname, search } = new URL(url);
      const headers = { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': '49983' };
      return { port: service.port, path: pathname + search, headers };
    };
    const up = at(await sandbox.uploadUrl(FILE));
    const down = at(await sandbox.downloadUrl(FILE));
    const { megabytes } = size;
    const rows = await bothWays(where, size, {
      up: () => sendBytes('POST', up, megabytes),
      down: () => fetchBytes(down, megabytes),
    });
    const byClient = await bothWays(where, size, {
      up: () => sandbox.files.write(FILE, body(megabytes)),
      down: async () => count(await sandbox.files.read(FILE, { format: 'stream', requestTimeoutMs: 0 }), size),
    });
    return [...rows, ...byClient.map((row) => ({ ...row, what: `${row.what}, official client` }))];
  } finally {
    await sandbox.kill();
  }
}

/** The same to and from nginx: what HTTP on this machine gives at best. */
export async function measureNginxTransfer(size: TransferSize): Promise<Row[]> {
  const nginx = await startNginxFiles();
  if (nginx === undefined)
    return [{ what: WHAT.upload, where: WHERE.nginx, note: 'nginx with its DAV module is not installed' }];
  const file = { port: nginx.port, path: '/large' };
  try {
    return await bothWays(WHERE.nginx, size, {
      up: () => sendBytes('PUT', file, size.megabytes),
      down: () => fetchBytes(file, size.megabytes),
    });
  } finally {
    await nginx.stop();
  }
}

async function bothWays(
  where: string,
  { megabytes, rounds }: TransferSize,
  ways: { up: () => Promise<unknown>; down: () => Promise<unknown> },
): Promise<Row[]> {
  const note = `${megabytes} MB`;
  return [
    { what: WHAT.upload, where, figure: await repeatRate(rounds, megabytes, ways.up), note },
    { what: WHAT.download, where, figure: await repeatRate(rounds, megabytes, ways.down), note },
  ];
}

/** A body that is made while it is sent, so that its size takes no memory. */
function body(megabytes: number): ReadableStream<Uint8Array> {
  const block = randomBytes(MIB);
  let sent = 0;
  return new ReadableStream({
    pull(controller) {
      if (sent++ < megabytes) controller.enqueue(new Uint8Array(block));
      else controller.close();
    },
  });
}

async function count(stream: ReadableStream<Uint8Array>, { megabytes }: TransferSize): Promise<void> {
  let received = 0;
  for await (const chunk of stream) received += chunk.length;
  if (received !== megabytes * MIB) throw new Error(`${received} bytes came`);
}
