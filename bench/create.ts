import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import type { TestService } from '../tests/support/service.ts';
import type { Row } from './report.ts';
import { repeat, summarize, timed } from './statistics.ts';

/** Create and first command in the three shapes of the public ComputeSDK suite: one after the other, staggered, all at once. */
export async function measureCreate(service: TestService, where: string, count: number): Promise<Row[]> {
  const { connection } = service;
  const rows: Row[] = [];

  const creates: number[] = [];
  const kills: number[] = [];
  const sequential = await repeat(count, async () => {
    const created = await timed(() => Sandbox.create(connection));
    creates.push(created.ms);
    const ran = await timed(() => created.value.commands.run('node -v'));
    kills.push((await timed(() => created.value.kill())).ms);
    return created.ms + ran.ms;
  });
  rows.push({ what: 'create', where, summary: summarize(creates, sequential.failures) });
  rows.push({ what: 'create → first command, sequential', where, summary: sequential });
  rows.push({ what: 'kill', where, summary: summarize(kills) });

  rows.push({ what: 'create → first command, staggered 200 ms', where, summary: await together(service, count, 200) });
  rows.push({ what: 'create → first command, burst', where, summary: await together(service, count, 0) });
  return rows;
}

/** `count` creates, each begun `gapMs` after the one before, whether that has come back or not. */
async function together(service: TestService, count: number, gapMs: number) {
  const times: number[] = [];
  let failures = 0;
  await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      await delay(index * gapMs);
      try {
        const before = performance.now();
        const sandbox = await Sandbox.create(service.connection);
        await sandbox.commands.run('node -v');
        times.push(performance.now() - before);
        await sandbox.kill();
      } catch {
        failures++;
      }
    }),
  );
  return summarize(times, failures);
}

/** Create → command → kill as fast as it goes for a while, with a fixed number under way. */
export async function measureSustained(service: TestService, where: string, seconds: number): Promise<Row> {
  const until = Date.now() + seconds * 1000;
  let done = 0;
  let failed = 0;
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      while (Date.now() < until) {
        try {
          const sandbox = await Sandbox.create(service.connection);
          await sandbox.commands.run('true');
          await sandbox.kill();
          done++;
        } catch {
          failed++;
        }
      }
    }),
  );
  return {
    what: `create → command → kill for ${seconds} s`,
    where,
    value: `${(done / seconds).toFixed(1)}/s`,
    note: `${failed} failed`,
  };
}
