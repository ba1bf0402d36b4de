import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../core/errors.ts';
import { newUuid } from '../../core/ids.ts';
import type { BuildStore } from '../../db/build-store.ts';
import type { BuildContext } from './context.ts';
import { BuildFailure } from './failure.ts';
import type { BuildLog } from './log.ts';
import { type BuildResources, BuildSandbox, type BuildSandboxParts, endOf } from './sandbox.ts';
import type { Slots } from './slots.ts';

export interface FinishParts extends BuildSandboxParts {
  slots: Slots;
  builds: Pick<BuildStore, 'noteSnapshot'>;
  log: BuildLog;
  owner: { templateId: string; buildId: string };
  /** Of the sandboxes that the template is for: the snapshot is taken of one like them. */
  finalResources: BuildResources;
  readyTimeoutMs: number;
}

const STEP = 'finalize';
/** Between two runs of a ready command that was not content: first so long, then ever longer. */
const READY_FIRST_MS = 200;
const READY_EVERY_MS = 2_000;
const DEFAULT_READY = 'sleep 20';
/** How soon the end of a start command is noticed. */
const POLL_MS = 100;

/**
 * Runs the start command on the finished tree until the ready command is content, and writes the sandbox down as it runs. Resolves to the snapshot's id;
 * null where there is no start command, and a sandbox just boots.
 */
export async function finish(
  parts: FinishParts,
  context: BuildContext,
  { startCmd, readyCmd }: { startCmd: string | null; readyCmd: string | null },
  signal: AbortSignal,
): Promise<string | null> {
  if (startCmd === null && readyCmd === null) return null;
  return parts.slots.take(async () => {
    const sandbox = await BuildSandbox.boot(parts, context.layers, parts.finalResources, parts.owner, signal);
    try {
      return await startAndWrite(parts, sandbox, context, { startCmd, readyCmd }, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof BuildFailure)) throw error;
      parts.log.add('error', error.message, STEP);
      throw error;
    } finally {
      await sandbox.destroy();
    }
  }, signal);
}

async function startAndWrite(
  parts: FinishParts,
  sandbox: BuildSandbox,
  context: BuildContext,
  { startCmd, readyCmd }: { startCmd: string | null; readyCmd: string | null },
  signal: AbortSignal,
): Promise<string | null> {
  const { log } = parts;
  const { user, workdir, env } = context;
  const place = { user, workdir, env };
  const over = new AbortController();
  const watched = AbortSignal.any([signal, over.signal]);
  let died: string | undefined;
  let following = Promise.resolve();
  if (startCmd !== null) {
    log.add('info', `Running start command: ${startCmd}`, STEP);
    const subscriber = 1 + Math.floor(Math.random() * 1e9);
    const command = { ...place, command: startCmd, timeoutMs: Number.POSITIVE_INFINITY };
    const pid = await sandbox.start(command, signal, subscriber).catch((error: unknown) => {
      signal.throwIfAborted();
      throw new BuildFailure(`failed to run start command '${startCmd}': ${messageOf(error)}`, STEP);
    });
    const onLine = (stream: string, line: string) =>
      log.addOutput(stream === 'stdout' ? 'info' : 'warn', `[start] [${stream}]: ${line}`, STEP);
    following = sandbox
      .follow(pid, subscriber, onLine, watched)
      .then((end) => {
        // One that ends well has left something running, or had only to prepare.
        died = endOf(end, 0);
      })
      .catch((error: unknown) => {
        if (!watched.aborted) died = messageOf(error);
      });
  }
  try {
    await awaitReady(parts, sandbox, place, readyCmd ?? DEFAULT_READY, () => died, signal);
  } finally {
    over.abort();
    await following;
  }
  if (startCmd === null) return null;
  const snapshotId = `build-${newUuid()}`;
  await parts.builds.noteSnapshot(parts.owner.buildId, snapshotId);
  // A wait for nothing but time is over once the snapshot is taken.
  const ready = readyCmd === null || /^sleep \d+$/.test(readyCmd.trim()) ? null : readyCmd;
  await sandbox.writeSnapshot(snapshotId, { ...place, command: startCmd, ready }, signal);
  return snapshotId;
}

async function awaitReady(
  parts: FinishParts,
  sandbox: BuildSandbox,
  place: { user: string; workdir: string; env: Record<string, string> },
  readyCmd: string,
  died: () => string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { log } = parts;
  log.add('info', `Waiting for template to be ready: ${readyCmd}`, STEP);
  const giveUpAt = Date.now() + parts.readyTimeoutMs;
  const refuseDead = () => {
    const why = died();
    if (why !== undefined) throw new BuildFailure(`start command failed: ${why}`, STEP);
  };
  let last = '';
  for (let pauseMs = READY_FIRST_MS; ; pauseMs = Math.min(pauseMs * 1.5, READY_EVERY_MS)) {
    refuseDead();
    const leftMs = giveUpAt - Date.now();
    if (leftMs <= 0)
      throw new BuildFailure(
        `the ready command was not content within ${Math.round(parts.readyTimeoutMs / 1000)} s${last && `: ${last}`}`,
        STEP,
      );
    const lines: string[] = [];
    const end = await sandbox.run(
      {
        ...place,
        command: readyCmd,
        timeoutMs: leftMs,
        onLine: (_stream, line) => lines.push(line),
      },
      signal,
    );
    if (endOf(end, leftMs) === undefined) break;
    last = lines.at(-1) ?? '';
    for (let waited = 0; waited < pauseMs && died() === undefined; waited += POLL_MS)
      await delay(POLL_MS, undefined, { signal });
  }
  refuseDead();
  log.add('info', 'Template is ready', STEP);
}
