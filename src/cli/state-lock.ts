import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { errnoOf, SandbarError } from '../core/errors.ts';

/**
 * Makes sure that one service alone works on a state directory. The lock is a socket in Linux's abstract namespace: the kernel
 * gives it to one process and takes it back however that process ends, so that no stale file ever stands in the way.
 */
export async function holdLock(stateDir: string): Promise<{ release(): void }> {
  const name = `\0sandbar-${createHash('sha256').update(stateDir).digest('hex')}`;
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      const taken = errnoOf(error) === 'EADDRINUSE';
      reject(taken ? new SandbarError('conflict', `another Sandbar runs on ${stateDir}`) : error);
    });
    server.listen(name, resolve);
  });
  return { release: () => void server.close() };
}
