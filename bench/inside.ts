import { randomBytes } from 'node:crypto';
import { Sandbox } from 'e2b';
import type { TestService } from '../tests/support/service.ts';
import type { Row } from './report.ts';
import { repeat, timed } from './statistics.ts';

const MIB = 1024 * 1024;

/** The in-sandbox interface: a command's round trip, small and large files, output, a large directory. */
export async function measureInside(service: TestService, where: string, count: number): Promise<Row[]> {
  const sandbox = await Sandbox.create({ ...service.connection, timeoutMs: 600_000 });
  try {
    const rows: Row[] = [];
    const row = async (what: string, work: () => Promise<unknown>, samples = count) =>
      rows.push({ what, where, summary: await repeat(samples, async () => (await timed(work)).ms) });
    await row('exec true', () => sandbox.commands.run('true'));
    const small = 'x'.repeat(1024);
    await row('write 1 KB', () => sandbox.files.write('/home/user/small', small));
    await row('read 1 KB', () => sandbox.files.read('/home/user/small'));
    await sandbox.commands.run('mkdir -p many && cd many && for i in $(seq 10000); do : > f$i; done', {
      timeoutMs: 300_000,
    });
    await row('list 10,000 entries', () => sandbox.files.list('/home/user/many'), 5);
    rows.push(...(await throughput(sandbox, where)));
    return rows;
  } finally {
    await sandbox.kill();
  }
}

async function throughput(sandbox: Sandbox, where: string): Promise<Row[]> {
  const sizeMib = 256;
  const block = randomBytes(MIB);
  const body = new Blob(Array.from({ length: sizeMib }, () => block));
  const rate = (ms: number) => `${Math.round((sizeMib * 1000) / ms)} MB/s`;
  const up = await timed(() => sandbox.files.write('/home/user/large', body.stream()));
  const down = await timed(async () => {
    const stream = await sandbox.files.read('/home/user/large', { format: 'stream' });
    for await (const _ of stream) {
      // Only counted by time.
    }
  });
  let bytes = 0;
  const output = await timed(() =>
    sandbox.commands.run('head -c 67108864 /dev/zero | tr "\\0" x', {
      onStdout: (data) => {
        bytes += data.length;
      },
      timeoutMs: 120_000,
    }),
  );
  return [
    { what: `upload ${sizeMib} MB`, where, value: rate(up.ms) },
    { what: `download ${sizeMib} MB`, where, value: rate(down.ms) },
    { what: 'output of a command', where, value: `${Math.round(bytes / MIB / (output.ms / 1000))} MB/s` },
  ];
}
