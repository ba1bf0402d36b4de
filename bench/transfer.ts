import { randomBytes } from 'node:crypto';
import { Sandbox } from 'e2b';
import type { TestService } from '../tests/support/service.ts';
import { WHAT, WHERE } from './names.ts';
import { startNginxFiles } from './nginx.ts';
import type { Row } from './report.ts';
import { repeatRate } from './statistics.ts';

export interface TransferSize {
  megabytes: number;
  rounds: number;
}

const MIB = 1024 * 1024;
const FILE = '/home/user/large';

/** A large file into a sandbox and out of it, through the official client. */
export async function measureTransfer(service: TestService, where: string, size: TransferSize): Promise<Row[]> {
  const sandbox = await Sandbox.create({ ...service.connection, timeoutMs: 3_600_000 });
  try {
    const up = () => sandbox.files.write(FILE, body(size.megabytes));
    const down = async () => count(await sandbox.files.read(FILE, { format: 'stream', requestTimeoutMs: 0 }), size);
    return await bothWays(where, size, up, down);
  } finally {
    await sandbox.kill();
  }
}

/** The same bytes by the same client to and from nginx: what HTTP on this machine gives at best. */
export async function measureNginxTransfer(size: TransferSize): Promise<Row[]> {
  const nginx = await startNginxFiles();
  if (nginx === undefined)
    return [{ what: WHAT.upload, where: WHERE.nginx, note: 'nginx with its DAV module is not installed' }];
  const url = `http://127.0.0.1:${nginx.port}/large`;
  try {
    const up = async () => {
      const response = await fetch(url, { method: 'PUT', body: body(size.megabytes), duplex: 'half' });
      if (!response.ok) throw new Error(`nginx answers ${response.status}`);
    };
    const down = async () => {
      const { body: content } = await fetch(url);
      if (content === null) throw new Error('nginx answers nothing');
      await count(content, size);
    };
    return await bothWays(WHERE.nginx, size, up, down);
  } finally {
    await nginx.stop();
  }
}

async function bothWays(
  where: string,
  { megabytes, rounds }: TransferSize,
  up: () => Promise<unknown>,
  down: () => Promise<unknown>,
): Promise<Row[]> {
  const note = `${megabytes} MB`;
  return [
    { what: WHAT.upload, where, figure: await repeatRate(rounds, megabytes, up), note },
    { what: WHAT.download, where, figure: await repeatRate(rounds, megabytes, down), note },
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
