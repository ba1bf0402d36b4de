import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { Processors } from './processors.ts';

/** With more than this waiting, no regard is had to anybody. */
const MANY = 64;
/** What waits longer than this is done however busy the machine is. */
const LONGEST_MS = 5_000;
const LOOK_EVERY_MS = 25;
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
  readonly #inTheWay: () => boolean;
  readonly #log: Log;
  readonly #processors = new Processors();
  readonly #waiting: Remains[] = [];
  #loop: Promise<void> | undefined;
  #hurried = false;

  /** `inTheWay` tells whether it would be in somebody's way just now. */
  constructor(inTheWay: () => boolean, log: Log) {
    this.#inTheWay = inTheWay;
    this.#log = log;
  }

  /** `work` must be safe to repeat. What is waiting already for the same sandbox is not added again. */
  add(id: string, work: () => Promise<void>): void {
    if (this.#waiting.some((remains) => remains.id === id)) return;
    this.#waiting.push({ id, work, since: Date.now() });
    this.#loop ??= this.#run().finally(() => {
      this.#loop = undefined;
    });
  }

  /** Resolves when nothing waits; until then nothing is put off. */
  async drain(): Promise<void> {
    this.#hurried = true;
    await this.#loop;
    this.#hurried = false;
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
    if (this.#hurried || this.#waiting.length > MANY || Date.now() - since > LONGEST_MS) return false;
    return this.#inTheWay() || this.#processors.isBusy();
  }

  #tryLater({ id, work }: Remains, error: unknown): void {
    this.#log.error('an ended sandbox cannot be cleared away yet', { sandbox: id, error: messageOf(error) });
    setTimeout(() => this.add(id, work), RETRY_MS).unref();
  }
}
