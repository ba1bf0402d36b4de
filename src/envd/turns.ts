import { setTimeout as delay } from 'node:timers/promises';

/** Where turns are taken. */
export interface TurnTaking {
  /** Resolves when those before are done, or after `limitMs` all the same. The function given back ends the turn. */
  take(key: string, limitMs: number): Promise<() => void>;
}

/**
 * Lets whoever works on the same thing come one after the other. A client that gave up on an upload and tries again arrives before
 * its first attempt has been noticed dead: without this the two would write into one file.
 */
export class Turns implements TurnTaking {
  readonly #last = new Map<string, Promise<void>>();

  async take(key: string, limitMs: number): Promise<() => void> {
    const before = this.#last.get(key);
    const turn = Promise.withResolvers<void>();
    this.#last.set(key, turn.promise);
    if (before) {
      const patience = new AbortController();
      const late = delay(limitMs, undefined, { signal: patience.signal }).catch(() => undefined);
      await Promise.race([before, late]);
      patience.abort();
    }
    return () => {
      turn.resolve();
      if (this.#last.get(key) === turn.promise) this.#last.delete(key);
    };
  }
}
