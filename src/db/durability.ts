import { open } from 'node:fs/promises';
import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';

/** When what was written to the store is sure to outlive a loss of power. Writes themselves outlive a crash of the service without it. */
export interface Durability {
  /** Resolves when all that was written before the call is on disk. */
  settled(): Promise<void>;
  stop(): Promise<void>;
}

/** A server of its own sees to it before it answers a commit. */
export const settledAlready: Durability = {
  settled: async () => undefined,
  stop: async () => undefined,
};

const ROUND_MS = 1_000;

/**
 * Brings SQLite's write-ahead log to disk outside the event loop, once for everybody who waits: in the commit itself it would stop the service
 * for milliseconds each time. What nobody waits for is on disk a second later.
 */
export class WalDurability implements Durability {
  readonly #file: string;
  readonly #timer: NodeJS.Timeout;
  #current: Promise<void> = Promise.resolve();
  #next: Promise<void> | undefined;

  constructor(databaseFile: string, log: Log) {
    this.#file = `${databaseFile}-wal`;
    this.#timer = setInterval(() => {
      this.settled().catch((error) => log.error('the store cannot be brought to disk', { error: messageOf(error) }));
    }, ROUND_MS);
    this.#timer.unref();
  }

  settled(): Promise<void> {
    // The one under way may have begun before the last write.
    this.#next ??= this.#current
      .catch(() => undefined)
      .then(() => {
        this.#current = this.#next ?? Promise.resolve();
        this.#next = undefined;
        return sync(this.#file);
      });
    return this.#next;
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.settled();
  }
}

async function sync(file: string): Promise<void> {
  const handle = await open(file, 'r').catch((error: NodeJS.ErrnoException) => {
    // No log: everything is in the database file, which SQLite brings to disk before it removes the log.
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  try {
    await handle?.datasync();
  } finally {
    await handle?.close();
  }
}
