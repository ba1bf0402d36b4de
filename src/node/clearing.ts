import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';

/** With more than this waiting, no regard is had to anybody. */
const MANY = 16;
/** What waits longer than this is done however busy the machine is. */
const LONGEST_MS = 1_000;
const LOOK_EVERY_MS = 25;
/** Who has killed one sandbox often creates the next at once. */
const FIRST_AFTER_MS = 20;
const RETRY_MS = 5_000;

interface Remains {
  id: string;
  work: () => Promise<void>;
  since: number;
}

/**
 * Clears away what ended sandboxes stood on, one after the other and behind live traffic. What fails is tried again; what a crash leaves
 * undone is found by the next start.
 */
export class Clearing {
  readonly #isBusy: () => boolean;
  readonly #log: Log;
  readonly #waiting: Remains[] = [];
  #loop: Promise<void> | undefined;
  #hurried = false;

  /** `isBusy` tells whether the machine has no time for it just now. */
  constructor(isBusy: () => boolean, log: Log) {
    this.#isBusy = isBusy;
    this.#log = log;
  }

  /** `work` must be safe to repeat. What is waiting already for the same sandbox is not added again. */
  add(id: string, work: () => Promise<void>): void {
    if (this.#waiting.some((remains) => remains.id === id)) return;
    this.#waiting.push({ id, work, since: Date.now() });
    this.#start();
  }

  /** Resolves when nothing waits; until then nothing is put off. */
  async drain(): Promise<void> {
    this.#hurried = true;
    while (this.#loop !== undefined) await this.#loop;
    this.#hurried = false;
  }

  #start(): void {
    this.#loop ??= this.#run().finally(() => {
      this.#loop = undefined;
      // Added after the last look.
      if (this.#waiting.length > 0) this.#start();
    });
  }

  async #run(): Promise<void> {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (this.#mayWait(next)) {
        await delay(LOOK_EVERY_MS);
        continue;
      }
      await next.work().catch((error: unknown) => this.#tryLater(next, error));
      this.#waiting.shift();
    }
  }

  #mayWait({ since }: Remains): boolean {
    const waitedMs = Date.now() - since;
    if (this.#hurried || this.#waiting.length > MANY || waitedMs > LONGEST_MS) return false;
    return waitedMs < FIRST_AFTER_MS || this.#isBusy();
  }

  #tryLater({ id, work }: Remains, error: unknown): void {
    this.#log.error('an ended sandbox cannot be cleared away yet', { sandbox: id, error: messageOf(error) });
    setTimeout(() => this.add(id, work), RETRY_MS).unref();
  }
}
