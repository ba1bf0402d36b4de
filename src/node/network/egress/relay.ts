import type { Socket } from 'node:net';

/** A side that has vanished is noticed after so long. */
const KEEP_ALIVE_MS = 60_000;

/** Joins two connections: bytes both ways as they come, the end of one side passed on as an end, a failure as a reset. */
export function relay(client: Socket, upstream: Socket, head: Buffer): void {
  for (const [side, other] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    side.setKeepAlive(true, KEEP_ALIVE_MS);
    side.on('error', () => undefined);
    side.on('close', (failed) => {
      // Without a failure both directions have ended, and what is still to be written to the other side is on its way.
      if (failed || !side.readableEnded) reset(other);
    });
  }
  if (head.length > 0) upstream.write(head);
  client.pipe(upstream);
  upstream.pipe(client);
}

/** Cuts a connection so that its other end sees it cut. */
export function reset(socket: Socket): void {
  if (!socket.destroyed) socket.resetAndDestroy();
}
