import type { SandboxUsage } from '../envd/status.ts';
import type { TurnTaking } from '../envd/turns.ts';
import type { FollowedSandboxes, Follower } from '../node/contract.ts';
import type { Admission } from '../proxy/admission.ts';
import type { SandboxDirectory, SandboxRow } from '../sandboxes/contract.ts';
import { Channel } from './channel.ts';
import type { MainSurface, WorkerSurface } from './contract.ts';

/** What the main process has that workers ask for. */
export interface DeskParts {
  directory: SandboxDirectory;
  sandboxes: FollowedSandboxes;
  usage: (row: SandboxRow) => Promise<SandboxUsage>;
  admission: Admission;
  turns: TurnTaking;
}

export interface DeskEvents {
  /** The worker can take connections. */
  onReady(): void;
  /** The worker has a connection that was handed over. */
  onTook(connection: number): void;
  /** The worker does not let go of a sandbox that must be held: it has to be ended. */
  onStuck(): void;
}

/** Longer than a worker waits for its requests under way before it cuts them. */
const HOLD_LIMIT_MS = 20_000;

/** Answers one worker, and tells it what becomes of the sandboxes it knows. */
export class Desk implements Follower {
  readonly #parts: DeskParts;
  readonly #events: DeskEvents;
  readonly channel: Channel<WorkerSurface>;
  /** Sandboxes that the worker has a way into. */
  readonly #known = new Set<string>();
  /** Gives back what the worker holds, by number. */
  readonly #held = new Map<number, () => void>();
  #lastNumber = 0;

  constructor(parts: DeskParts, send: (message: unknown) => void, events: DeskEvents) {
    this.#parts = parts;
    this.#events = events;
    this.channel = new Channel(send, this.#surface());
  }

  async hold(sandboxId: string): Promise<void> {
    const stuck = setTimeout(this.#events.onStuck, HOLD_LIMIT_MS);
    // A worker that ends has let go of everything.
    await this.channel.call('hold', sandboxId).catch(() => undefined);
    clearTimeout(stuck);
  }

  reopen(sandboxId: string): void {
    this.channel.tell('reopen', sandboxId);
  }

  cut(sandboxId: string, reason: string): void {
    this.channel.tell('cut', sandboxId, reason);
  }

  end(sandboxId: string, reason: string): void {
    this.#known.delete(sandboxId);
    this.channel.tell('end', sandboxId, reason);
  }

  /** The worker is gone: what it held is free again. */
  close(): void {
    this.channel.close('a worker has ended');
    this.#parts.sandboxes.unfollow(this);
    for (const giveBack of this.#held.values()) giveBack();
    this.#held.clear();
  }

  #surface(): MainSurface {
    const { directory, admission, turns, usage } = this.#parts;
    return {
      ready: () => this.#events.onReady(),
      took: (connection) => this.#events.onTook(connection),
      lookup: async (sandboxId) => this.#introduce(await directory.lookup(sandboxId)),
      wake: async (sandboxId) => this.#introduce(await directory.wake(sandboxId)),
      usage: async (sandboxId) => {
        const row = await directory.lookup(sandboxId);
        return row && usage(row);
      },
      enter: async (sandboxId, limit) => {
        const leave = await admission.enter(sandboxId, limit);
        return leave && this.#keep(leave);
      },
      leave: (number) => this.#giveBack(number),
      takeTurn: async (key, limitMs) => this.#keep(await turns.take(key, limitMs)),
      endTurn: (number) => this.#giveBack(number),
    };
  }

  /** Tells the worker the way into a sandbox before anything else that becomes of it, which the order of the channel then keeps. */
  async #introduce<T extends SandboxRow | undefined>(row: T): Promise<T> {
    if (row === undefined || this.#known.has(row.id)) return row;
    // A failure is met again by whoever asks something of the sandbox.
    await this.#parts.sandboxes.settled(row.id).catch(() => undefined);
    // From here on nothing comes in between; another request may have been faster.
    if (this.#known.has(row.id)) return row;
    const access = this.#parts.sandboxes.follow(row.id, this);
    if (access === undefined) return row;
    this.#known.add(row.id);
    this.channel.tell('know', row.id, access);
    return row;
  }

  #keep(giveBack: () => void): number {
    const number = ++this.#lastNumber;
    this.#held.set(number, giveBack);
    return number;
  }

  #giveBack(number: number): void {
    this.#held.get(number)?.();
    this.#held.delete(number);
  }
}
