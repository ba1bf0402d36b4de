import { readFileSync, statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox, Template } from 'e2b';
import type { RuntimeName } from '../src/core/config.ts';
import { startTestService, type TestService } from '../tests/support/service.ts';
import type { Row } from './report.ts';
import { type Figure, repeat, type Summary, Timings, timed } from './statistics.ts';

export interface LifecycleSize {
  /** Memory that a program in the sandbox holds, MiB. */
  memoryMb: readonly number[];
  rounds: number;
  forks: readonly number[];
}

const LONG = { timeoutMs: 3_600_000 };
const NO_WAIT = { requestTimeoutMs: 0 };
const BIG = 'bench-big';
const MIB = 1024 * 1024;
const RESUME = (how: string) => `resume (${how}) and a command`;

/** Pause and resume by size of memory, by thaw and from disk; snapshots, forks and the size of images. */
export async function measureLifecycle(runtime: RuntimeName, size: LifecycleSize): Promise<Row[]> {
  const rows: Row[] = [];
  // In the first, a paused sandbox stays in memory long enough for a thaw; in the second it is let go of at once.
  for (const [hold, how] of [
    ['3600', 'thaw'],
    ['0', 'from disk'],
  ] as const) {
    if (runtime === 'container' && how === 'from disk') {
      rows.push({ what: RESUME(how), where: runtime, note: 'a container has its memory nowhere else' });
      continue;
    }
    const service = await startTestService({
      runtime,
      env: { SANDBAR_PAUSE_HOLD_SECONDS: hold, SANDBAR_WARM_POOL: '0' },
    });
    try {
      const template = await bigTemplate(service, Math.max(...size.memoryMb));
      for (const memoryMb of size.memoryMb)
        rows.push(...(await measurePauses(service, runtime, template, memoryMb, how, size.rounds)));
      if (how === 'thaw') rows.push(...(await measureCopies(service, runtime, size)));
    } finally {
      await service.dispose();
    }
  }
  return rows;
}

async function measurePauses(
  service: TestService,
  runtime: string,
  template: string,
  memoryMb: number,
  how: 'thaw' | 'from disk',
  rounds: number,
): Promise<Row[]> {
  const sandbox = await holding(service, template, memoryMb);
  const where = `${runtime}, ${memoryMb} MB`;
  const pauses = new Timings();
  const resumes = await repeat(rounds, async () => {
    await pauses.add(async () => (await timed(() => sandbox.pause(NO_WAIT))).ms);
    if (how === 'from disk') await untilLetGo(service, sandbox.sandboxId);
    // Resumed is when a command answers again.
    return (
      await timed(async () => {
        await sandbox.connect({ ...LONG, ...NO_WAIT });
        await sandbox.commands.run('true');
      })
    ).ms;
  });
  const rows: Row[] = [{ what: RESUME(how), where, summary: resumes }];
  if (how === 'thaw') {
    rows.unshift({ what: 'pause', where, summary: pauses.summary });
    rows.push(...(await measureSnapshot(service, sandbox, where, rounds)));
    if (runtime === 'gvisor') rows.push({ what: 'image on disk', where, figure: await imageSize(service, sandbox) });
  }
  await sandbox.kill();
  return rows;
}

async function measureSnapshot(service: TestService, sandbox: Sandbox, where: string, rounds: number): Promise<Row[]> {
  const snapshots = await repeat(rounds, async () => {
    const { ms, value } = await timed(() => sandbox.createSnapshot(NO_WAIT));
    await Sandbox.deleteSnapshot(value.snapshotId, service.connection);
    return ms;
  });
  return [{ what: 'snapshot', where, summary: snapshots }];
}

async function measureCopies(service: TestService, runtime: string, { forks, rounds }: LifecycleSize): Promise<Row[]> {
  const sandbox = await holding(service, 'base', 10);
  const rows: Row[] = [];
  for (const count of forks) {
    const summary: Summary = await repeat(count >= 100 ? 1 : rounds, async () => {
      const { ms, value } = await timed(() => fork(service, sandbox.sandboxId, count));
      for (const id of value) await service.fetch(`/sandboxes/${id}`, { method: 'DELETE' });
      return ms;
    });
    rows.push({ what: `fork ${count}`, where: `${runtime}, 10 MB`, summary });
  }
  await sandbox.kill();
  return rows;
}

async function fork(service: TestService, id: string, count: number): Promise<string[]> {
  const response = await service.fetch(`/sandboxes/${id}/fork`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ count, timeout: 3600 }),
  });
  const results = (await response.json()) as { sandbox?: { sandboxID: string } }[];
  const ids = results.flatMap(({ sandbox }) => sandbox?.sandboxID ?? []);
  if (ids.length < count) throw new Error(`${count - ids.length} of ${count} copies failed`);
  return ids;
}

/** A sandbox in which a program holds so much memory that does not compress. */
async function holding(service: TestService, template: string, memoryMb: number): Promise<Sandbox> {
  const sandbox = await Sandbox.create(template, { ...service.connection, ...LONG, ...NO_WAIT });
  await sandbox.files.write(
    '/home/user/hold.py',
    `import os, time\nheld = [os.urandom(1 << 20) for _ in range(${memoryMb})]\nopen('/tmp/held', 'w').close()\ntime.sleep(1e9)\n`,
  );
  const holder = await sandbox.commands.run('exec python3 /home/user/hold.py', { background: true, timeoutMs: 0 });
  void holder.wait().catch(() => undefined);
  await sandbox.commands.run('until [ -e /tmp/held ]; do sleep 0.1; done', { timeoutMs: 300_000 });
  return sandbox;
}

/** A template with room for the largest, or `base` where that is enough. */
async function bigTemplate(service: TestService, memoryMb: number): Promise<string> {
  if (memoryMb < 800) return 'base';
  const options = { ...service.connection, cpuCount: 2, memoryMB: Math.ceil((memoryMb * 1.4) / 2) * 2 };
  await Template.build(Template().fromTemplate('base'), BIG, options);
  return BIG;
}

async function untilLetGo(service: TestService, id: string): Promise<void> {
  const record = path.join(service.stateDir, 'sandboxes', id, 'record.json');
  while ((JSON.parse(readFileSync(record, 'utf8')) as { pid: number }).pid !== 0) await delay(5);
}

async function imageSize(service: TestService, { sandboxId }: Sandbox): Promise<Figure> {
  const image = path.join(service.stateDir, 'sandboxes', sandboxId, 'image');
  const files = await readdir(image, { recursive: true });
  const bytes = files.reduce((sum, file) => sum + statSync(path.join(image, file)).blocks * 512, 0);
  return { value: bytes / MIB, unit: 'MiB', samples: 1, failures: 0 };
}
