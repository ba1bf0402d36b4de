import { createConnection, type Socket } from 'node:net';

/** A TCP connection, or the error that made it fail; gives up after `timeoutMs`. With `allowHalfOpen` one side may end before the other. */
export function connectTcp(
  host: string,
  port: number,
  timeoutMs: number,
  signal?: AbortSignal,
  { allowHalfOpen = false } = {},
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const socket = createConnection({ host, port, noDelay: true, allowHalfOpen });
    const timer = setTimeout(() => socket.destroy(new Error(`no answer from ${host}:${port}`)), timeoutMs);
    const abort = () => socket.destroy(signal?.reason instanceof Error ? signal.reason : new Error('aborted'));
    signal?.addEventListener('abort', abort, { once: true });
    const settle = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      socket.off('error', fail);
    };
    const fail = (error: Error) => {
      settle();
      reject(error);
    };
    socket.once('error', fail);
    socket.once('connect', () => {
      settle();
      resolve(socket);
    });
  });
}
