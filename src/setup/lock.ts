import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { SandbarError } from '../core/errors.ts';

/**
 * Runs `task` while holding the kernel's lock (flock) on a file; waits for whoever holds it. Node has no flock of its own, so a
 * child holds it: it ends, and the lock with it, when its standard input closes, however this process ends.
 */
export async function withLock<T>(file: string, onWait: () => void, task: () => Promise<T>): Promise<T> {
  await mkdir(path.dirname(file), { recursive: true });
  let release = await acquire(file, ['--nonblock']);
  if (release === undefined) {
    onWait();
    release = await acquire(file, []);
  }
  if (release === undefined) throw new SandbarError('internal', `the lock ${file} cannot be taken`);
  try {
    return await task();
  } finally {
    await release();
  }
}

/** Undefined when the lock is not to be had. */
async function acquire(file: string, options: string[]): Promise<(() => Promise<void>) | undefined> {
  // `cat` says nothing until it is fed: the first byte back shows that flock has the lock and runs it.
  const holder = spawn('flock', [...options, file, 'cat'], { stdio: ['pipe', 'pipe', 'ignore'] });
  const ended = once(holder, 'close');
  holder.stdin.on('error', () => undefined);
  holder.stdin.write('.');
  const locked = await Promise.race([once(holder.stdout, 'data').then(() => true), ended.then(() => false)]);
  if (!locked) return undefined;
  return async () => {
    holder.stdin.end();
    await ended;
  };
}
