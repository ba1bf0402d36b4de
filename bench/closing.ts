import { once } from 'node:events';

const closers = new Set<() => Promise<void>>();
let interrupted = false;

/** Makes sure that something is closed once, also when the run is interrupted. Gives the way to close it in good order. */
export function closedAtLast(close: () => Promise<void>): () => Promise<void> {
  let closing: Promise<void> | undefined;
  const closer = () => {
    closing ??= close().finally(() => closers.delete(closer));
    return closing;
  };
  closers.add(closer);
  return closer;
}

/** Whether a signal came: nothing new is begun, since what is open is being closed. */
export function isInterrupted(): boolean {
  return interrupted;
}

/** On a signal, closes what is open and ends the process. Services of the tests have guards that do the same for them. */
export async function endOnSignals(): Promise<void> {
  const signal = await Promise.race(['SIGINT', 'SIGTERM'].map((name) => once(process, name).then(() => name)));
  interrupted = true;
  console.error(`\n${signal}: clearing up`);
  // Something more may be opened meanwhile.
  while (closers.size > 0)
    for (const close of [...closers].reverse()) await close().catch((error) => console.error(error));
  process.exit(1);
}
