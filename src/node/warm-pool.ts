import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { CreateOnNode } from './node.ts';

/** What makes two sandboxes interchangeable until they are given to somebody. */
export type WarmKind = Pick<CreateOnNode, 'runtime' | 'templateId' | 'buildId' | 'layers' | 'resources' | 'snapshotId'>;

export interface WarmPoolOptions {
  /** Sandboxes kept ready for a kind in use, whatever the demand. */
  least: number;
  /** Most sandboxes kept ready for one kind; 0 keeps none. */
  most: number;
  /** Boots one in the background. */
  boot: (kind: WarmKind) => BootAhead;
  /** Whether the processors have no time to spare just now. */
  isBusy: () => boolean;
  /** Ends one that was never given away. */
  discard: (sandboxId: string) => Promise<void>;
}

/** A sandbox that is being booted for whoever comes. */
export interface BootAhead {
  /** Its id, when it is up. */
  booted: Promise<string>;
  /** Somebody waits for it, or the next to come would. */
  hurry(): void;
}

interface Coming {
  /** Undefined when the boot fails. */
  id: Promise<string | undefined>;
  hurry(): void;
}

interface Stock {
  kind: WarmKind;
  ready: string[];
  /** Those that are being booted and not taken yet, oldest first. */
  coming: Coming[];
  /** Times of recent takings, oldest first. */
  demand: number[];
  lastUsedAt: number;
}

/** Demand is what was taken within this time: a pool of that size would have served it all, and waves come again. */
const DEMAND_WINDOW_MS = 60_000;
/** A kind nobody asks for any more keeps one ready for so long, then none. */
const FORGET_MS = 30 * 60_000;
const ROUND_MS = 1_000;
/**
 * Live traffic comes first: nothing is booted ahead while the processors have no time to spare (though that may not last for ever), nor beside as
 * many creates as there are processors; with enough in stock only one by one, and not for a while after every create.
 */
const PATIENCE_MS = 2_000;
const QUIET_MS = 1_000;
const ENOUGH_SHARE = 0.25;
const LOOK_EVERY_MS = 25;
/** Shares of the machine's memory: with less to spare than the one nothing is booted ahead, with less than the other what was booted ahead is given up. */
const GROW_SHARE = 0.3;
const SPARE_SHARE = 0.15;
/** After a boot that failed. */
const PAUSE_AFTER_FAILURE_MS = 5_000;

/**
 * Sandboxes booted ahead for the template builds in use. It grows with demand and shrinks without it, boots a few at a time, while the
 * processors have time, and gives way when memory runs short.
 */
export class WarmPool {
  readonly #options: WarmPoolOptions;
  readonly #log: Log;
  readonly #stocks = new Map<string, Stock>();
  readonly #stop = new AbortController();
  /** Boots at a time. */
  readonly #most = availableParallelism();
  readonly #booting = new Set<Promise<void>>();
  #lastCreateAt = 0;
  #lastBootAt = 0;
  #failedAt = 0;
  #creates = 0;
  #loop: Promise<void> | undefined;
  #wake: () => void = () => undefined;

  constructor(options: WarmPoolOptions, log: Log) {
    this.#options = options;
    this.#log = log;
  }

  start(): void {
    if (this.#options.most > 0) this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake();
    await this.#loop;
    await Promise.all(this.#booting);
    for (const stock of this.#stocks.values()) for (const id of stock.ready.splice(0)) await this.#options.discard(id);
  }

  /** A sandbox of the kind that is ready or will be before another could be, or undefined; either way the demand is noted. */
  async take(kind: WarmKind): Promise<string | undefined> {
    if (this.#options.most === 0 || this.#stop.signal.aborted) return undefined;
    const stock = this.#stockOf(kind);
    const now = Date.now();
    stock.lastUsedAt = now;
    stock.demand.push(now);
    this.#lastCreateAt = now;
    this.#wake();
    const ready = stock.ready.shift();
    const coming = ready === undefined ? stock.coming.shift() : undefined;
    coming?.hurry();
    if (stock.ready.length === 0) for (const next of stock.coming) next.hurry();
    return ready ?? coming?.id;
  }

  /** Makes sure that a kind is known, so that its first use finds one ready. */
  expect(kind: WarmKind): void {
    if (this.#options.most === 0) return;
    this.#stockOf(kind);
    this.#wake();
  }

  /** A snapshot is going: nothing can be booted from it any more. */
  async forgetSnapshot(snapshotId: string): Promise<void> {
    for (const [key, stock] of this.#stocks) {
      if (stock.kind.snapshotId !== snapshotId) continue;
      this.#stocks.delete(key);
      for (const id of stock.ready.splice(0)) await this.#options.discard(id);
    }
  }

  /** A pooled sandbox ended by itself. */
  lost(sandboxId: string): void {
    for (const stock of this.#stocks.values()) stock.ready = stock.ready.filter((id) => id !== sandboxId);
  }

  /** A create boots that could not be served from here. */
  get isCreating(): boolean {
    return this.#creates > 0;
  }

  /** Holds back while a create that could not be served from here boots. */
  async whileCreating<T>(work: () => Promise<T>): Promise<T> {
    this.#creates++;
    try {
      return await work();
    } finally {
      this.#creates--;
      this.#lastCreateAt = Date.now();
    }
  }

  #stockOf(kind: WarmKind): Stock {
    const key = createHash('sha256').update(JSON.stringify(kind)).digest('hex');
    let stock = this.#stocks.get(key);
    if (stock === undefined) {
      stock = { kind, ready: [], coming: [], demand: [], lastUsedAt: Date.now() };
      this.#stocks.set(key, stock);
    }
    return stock;
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#round();
      } catch (error) {
        this.#log.error('the warm pool cannot be kept', { error: messageOf(error) });
        await this.#sleep(PAUSE_AFTER_FAILURE_MS);
      }
    }
  }

  async #round(): Promise<void> {
    const now = Date.now();
    const isBusy = this.#options.isBusy();
    const spare = spareMemory();
    const short = spare < SPARE_SHARE;
    for (const [key, stock] of this.#stocks) {
      if (now - stock.lastUsedAt > FORGET_MS && stock.ready.length === 0) this.#stocks.delete(key);
      const surplus = stock.ready.length - (short ? 0 : this.#targetOf(stock, now));
      for (const id of surplus > 0 ? stock.ready.splice(0, surplus) : []) await this.#options.discard(id);
    }
    const wanting =
      spare < GROW_SHARE
        ? undefined
        : [...this.#stocks.values()].find((stock) => inStock(stock) < this.#targetOf(stock, now));
    if (wanting === undefined) return this.#sleep(ROUND_MS);
    if (this.#mustWait(wanting, now, isBusy)) return delay(LOOK_EVERY_MS);
    this.#lastBootAt = now;
    this.#begin(wanting, isBusy);
  }

  #begin(stock: Stock, isBusy: boolean): void {
    const { booted, hurry } = this.#options.boot(stock.kind);
    const id = booted.catch((error: unknown) => {
      this.#log.warn('a sandbox could not be booted ahead', { error: messageOf(error) });
      this.#failedAt = Date.now();
      return undefined;
    });
    const coming = { id, hurry };
    stock.coming.push(coming);
    // The next to come would wait for it; but who is here already comes first.
    if (stock.ready.length === 0 && !isBusy) hurry();
    const settled = this.#stockUp(stock, coming).finally(() => this.#booting.delete(settled));
    this.#booting.add(settled);
  }

  async #stockUp(stock: Stock, coming: Coming): Promise<void> {
    const id = await coming.id;
    const at = stock.coming.indexOf(coming);
    // Taken while it was booting.
    if (at < 0) return;
    stock.coming.splice(at, 1);
    if (id === undefined) return;
    if (!this.#stop.signal.aborted && [...this.#stocks.values()].includes(stock)) stock.ready.push(id);
    else await this.#options.discard(id);
  }

  /** Whether booting one ahead now would be in somebody's way. */
  #mustWait(stock: Stock, now: number, isBusy: boolean): boolean {
    const isEnough = stock.ready.length > this.#targetOf(stock, now) * ENOUGH_SHARE;
    if (this.#creates + this.#booting.size >= (isEnough ? 1 : this.#most)) return true;
    if (now - this.#failedAt < PAUSE_AFTER_FAILURE_MS) return true;
    if (isEnough && now - this.#lastCreateAt < QUIET_MS) return true;
    return isBusy && now - Math.max(this.#lastCreateAt, this.#lastBootAt) < PATIENCE_MS;
  }

  /** As many as were taken lately and one more, within the limits. */
  #targetOf(stock: Stock, now: number): number {
    if (now - stock.lastUsedAt > FORGET_MS) return 0;
    return Math.min(this.#options.most, Math.max(this.#options.least, demandOf(stock, now) + 1));
  }

  async #sleep(ms: number): Promise<void> {
    const woken = new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    await Promise.race([woken, delay(ms, undefined, { ref: false })]);
  }
}

function inStock({ ready, coming }: Stock): number {
  return ready.length + coming.length;
}

/** How many were taken within the window; older takings are forgotten. */
function demandOf(stock: Stock, now: number): number {
  const fresh = stock.demand.findIndex((at) => at > now - DEMAND_WINDOW_MS);
  stock.demand.splice(0, fresh < 0 ? stock.demand.length : fresh);
  return stock.demand.length;
}

/** Share of the machine's memory that is available. */
function spareMemory(): number {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const read = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return read('MemAvailable') / read('MemTotal');
}
