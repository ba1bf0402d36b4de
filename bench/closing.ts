import { once } from 'node:events';

const closers = new Set<() => Promise<void>>();

/** Makes sure that something is closed, also when the run is interrupted. Gives the way to close it in good order, once. */
export function closedAtLast(close: () => Promise<void>): () => Promise<void> {
  const closer = async () => {
    if (closers.delete(closer)) await close();
  };
  closers.add(closer);
  return closer;
}

/** On a signal, closes what is open and ends. Services of the tests have guards that do the same for them. */
export async function endOnSignals(): Promise<void> {
  const signal = await Promise.race(['SIGINT', 'SIGTERM'].map((name) => once(process, name).then(() => name)));
  console.error(`\n${signal}: clearing up`);
  for (const close of [...closers].reverse()) await close().catch((error) => console.error(error));
  process.exit(1);
}
