import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { SandboxStore } from '../db/sandbox-store.ts';
import type { SandboxRow } from './contract.ts';

const BATCH = 100;
/** setTimeout's own limit is about 24 days; looking more often than needed is harmless. */
const LONGEST_SLEEP_MS = 60_000;
const RETRY_MS = 1_000;
/** Before a deadline that could not be kept is tried again: a pause that fails costs the sandbox a moment each time. */
const EXPIRE_RETRY_MS = 15_000;

/** Ends (or pauses) sandboxes at their deadline. The deadlines are in the store, so that they hold after a restart. */
export class Deadlines {
  readonly #store: SandboxStore;
  readonly #expire: (row: SandboxRow) => Promise<void>;
  readonly #log: Log;
  readonly #busy = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #wakeAt = Number.POSITIVE_INFINITY;
  #stopped = false;

  constructor(store: SandboxStore, expire: (row: SandboxRow) => Promise<void>, log: Log) {
    this.#store = store;
    this.#expire = expire;
    this.#log = log;
  }

  async start(): Promise<void> {
    await this.#round();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** Makes sure that somebody looks at `atMs`. */
  note(atMs: number): void {
    if (this.#stopped || atMs >= this.#wakeAt) return;
    clearTimeout(this.#timer);
    this.#wakeAt = atMs;
    const sleepMs = Math.min(Math.max(0, atMs - Date.now()), LONGEST_SLEEP_MS);
    this.#timer = setTimeout(() => void this.#round(), sleepMs);
  }

  async #round(): Promise<void> {
    this.#wakeAt = Number.POSITIVE_INFINITY;
    // One moment for both questions: what falls between two would be neither overdue nor to come.
    const now = Date.now();
    let next = now + LONGEST_SLEEP_MS;
    try {
      const limit = BATCH + this.#busy.size;
      const overdue = await this.#store.expired(now, limit);
      // Those that are being ended are overdue still, and must not wake us again and again; when there are more, one that is done does.
      const more = overdue.length === limit;
      for (const row of overdue) if (!this.#busy.has(row.id)) void this.#end(row, more);
      next = Math.min(next, await this.#nextAfter(now));
    } catch (error) {
      this.#log.error('deadlines cannot be read', { error: messageOf(error) });
      next = Date.now() + RETRY_MS;
    }
    this.note(next);
  }

  async #end(row: SandboxRow, more: boolean): Promise<void> {
    this.#busy.add(row.id);
    try {
      await this.#expire(row);
      this.#busy.delete(row.id);
      if (more) this.note(Date.now());
    } catch (error) {
      this.#log.error('a deadline could not be kept', { sandbox: row.id, error: messageOf(error) });
      const again = () => {
        this.#busy.delete(row.id);
        this.note(Date.now());
      };
      setTimeout(again, EXPIRE_RETRY_MS).unref();
    }
  }

  async #nextAfter(now: number): Promise<number> {
    const deadline = await this.#store.nextDeadline(now);
    return deadline ?? Number.POSITIVE_INFINITY;
  }
}
