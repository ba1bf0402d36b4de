import { setTimeout as delay } from 'node:timers/promises';
import { newOperationId } from '../agent/client.ts';
import type { Agent } from '../agent/contract.ts';

/** A template's start command, kept beside an image that does not hold it running. */
export interface StartCommand {
  words: string[];
  /** Run until it succeeds; none: nothing is waited for. */
  readyWords: string[];
  user: string;
  workdir: string;
  env: Record<string, string>;
}

/** A sandbox whose server is slower than this is given away all the same. */
const READY_MS = 20_000;
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 500;

/** Starts the command in a sandbox that has just booted, and waits a while until it is ready. */
export async function runStartCommand(agent: Agent, command: StartCommand, signal?: AbortSignal): Promise<void> {
  const { user, workdir, env, words, readyWords } = command;
  const start = (program: readonly string[], more: { subscriber?: number; deadlineMs?: number }) =>
    agent.start(
      {
        user,
        cmd: program[0] ?? '',
        args: program.slice(1),
        env,
        cwd: workdir,
        stdin: false,
        operationId: newOperationId(),
        ...more,
      },
      signal,
    );
  await start(words, {});
  if (readyWords.length === 0) return;
  const giveUpAt = Date.now() + READY_MS;
  for (let pauseMs = FIRST_PAUSE_MS; Date.now() < giveUpAt; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    const subscriber = 1 + Math.floor(Math.random() * 1e9);
    const pid = await start(readyWords, { subscriber, deadlineMs: giveUpAt - Date.now() });
    if ((await exitCodeOf(agent, pid, subscriber, signal)) === 0) return;
    await delay(pauseMs);
  }
}

async function exitCodeOf(agent: Agent, pid: number, subscriber: number, signal?: AbortSignal): Promise<number> {
  for (let offset = 0; ; ) {
    const read = { process: { pid }, subscriber, offset, length: 0, waitMs: READY_MS, replay: false };
    const batch = await agent.readOutput(read, signal);
    offset = batch.nextOffset;
    if (batch.end !== undefined) return batch.end.exitCode;
  }
}
