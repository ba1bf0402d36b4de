import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { Layout } from '../src/node/layout.ts';
import type { TestService } from '../tests/support/service.ts';
import { FIRST_COMMAND, WHAT } from './names.ts';
import type { Row } from './report.ts';
import { repeat, type Summary, Timings, timed } from './statistics.ts';

const POOL_WAIT_MS = 60_000;
/** Between single creates: one is ready. */
const ONE_READY_MS = 300;
/** Before a wave: the pool has had time to begin, and has ended. */
const ALL_READY_MS = 1_500;

/** Create and kill alone, then create and first command in the three shapes of the public ComputeSDK suite. */
export async function measureCreate(service: TestService, where: string, count: number, pool: boolean): Promise<Row[]> {
  const rest = async (quietMs = ALL_READY_MS) => {
    if (pool) await untilPoolRests(service, quietMs);
    else await untilCleared(service);
  };
  // The pool boots ahead only what has been asked for once.
  await createAndRun(service, 'true');

  const kills = new Timings();
  const creates = await repeat(count, async () => {
    await rest(ONE_READY_MS);
    const { ms, value } = await timed(() => Sandbox.create(service.connection));
    await kills.add(async () => (await timed(() => value.kill())).ms);
    return ms;
  });
  await rest();
  const sequential = await repeat(count, () => createAndRun(service, FIRST_COMMAND));
  await rest();
  const staggered = await together(service, count, 200);
  await rest();
  const burst = await together(service, count, 0);
  // The pool is sized by what was lately asked for.
  await rest();
  const burstAgain = pool ? await together(service, count, 0) : undefined;
  return [
    { what: WHAT.create, where, summary: creates, ...(pool && { note: 'one is ready before each' }) },
    { what: 'kill', where, summary: kills.summary },
    { what: WHAT.firstCommand, where, summary: sequential },
    { what: WHAT.staggered, where, summary: staggered },
    { what: WHAT.burst, where, summary: burst },
    ...(burstAgain === undefined ? [] : [{ what: WHAT.burstAgain, where, summary: burstAgain }]),
  ];
}

/** From nothing to the end of a command, ms. The sandbox is gone afterwards, whatever became of the command. */
export async function createAndRun(service: TestService, command: string): Promise<number> {
  const before = performance.now();
  const sandbox = await Sandbox.create(service.connection);
  try {
    await sandbox.commands.run(command);
    return performance.now() - before;
  } finally {
    await sandbox.kill();
  }
}

/** `count` creates, each begun `gapMs` after the one before, whether that has come back or not. */
async function together(service: TestService, count: number, gapMs: number): Promise<Summary> {
  const timings = new Timings();
  await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      await delay(index * gapMs);
      await timings.add(() => createAndRun(service, FIRST_COMMAND));
    }),
  );
  return timings.summary;
}

/** Resolves when nothing of killed sandboxes is left, as nothing is left of the one before where a bare runtime is measured. */
async function untilCleared(service: TestService): Promise<void> {
  const giveUpAt = Date.now() + POOL_WAIT_MS;
  for (; sandboxStates(service.stateDir).length > 0; await delay(5))
    if (Date.now() > giveUpAt) throw new Error('what was killed is not cleared away');
}

/** Resolves when a sandbox is ready ahead and nothing has been booting for a while. */
async function untilPoolRests(service: TestService, quietMs: number): Promise<void> {
  const giveUpAt = Date.now() + POOL_WAIT_MS;
  for (let quietSince = Date.now(); Date.now() - quietSince < quietMs; await delay(20)) {
    const states = sandboxStates(service.stateDir);
    if (!states.includes('pooled') || states.includes('booting')) quietSince = Date.now();
    if (Date.now() > giveUpAt) throw new Error('the warm pool does not fill');
  }
}

function sandboxStates(stateDir: string): string[] {
  const layout = new Layout(stateDir);
  return readdirSync(layout.sandboxesDir).map((id) => {
    try {
      const text = readFileSync(path.join(layout.sandboxDir(id), 'record.json'), 'utf8');
      return (JSON.parse(text) as { state: string }).state;
    } catch {
      return 'going';
    }
  });
}
