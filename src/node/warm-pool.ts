import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { CreateOnNode } from './node.ts';

/** What makes two sandboxes interchangeable until they are given to somebody. */
export type WarmKind = Pick<CreateOnNode, 'runtime' | 'templateId' | 'buildId' | 'layers' | 'resources' | 'snapshotId'>;

export interface WarmPoolOptions {
  /** Most sandboxes kept ready for one kind; 0 keeps none. */
  most: number;
  /** Boots one and resolves to its id. */
  boot: (kind: WarmKind) => Promise<string>;
  /** Ends one that was never given away. */
  discard: (sandboxId: string) => Promise<void>;
}

interface Stock {
  kind: WarmKind;
  ready: string[];
  /** Times of recent takings, oldest first. */
  demand: number[];
  lastUsedAt: number;
}

/** Demand is what was taken within this time: a pool of that size would have served it all without waiting. */
const DEMAND_WINDOW_MS = 10_000;
/** A kind nobody asks for any more keeps one ready for so long, then none. */
const FORGET_MS = 30 * 60_000;
const ROUND_MS = 1_000;
/** Live traffic comes first: nothing is booted ahead until creates have been quiet for so long. */
const QUIET_MS = 30;
/** Share of the machine's memory that stays free of pooled sandboxes. */
const SPARE_SHARE = 0.15;
/** After a boot that failed. */
const PAUSE_AFTER_FAILURE_MS = 5_000;

/**
 * Sandboxes booted ahead for the template builds in use. It grows with demand and shrinks without it, boots one at a time and only
 * when nobody waits for a create, and gives way when memory runs short.
 */
export class WarmPool {
  readonly #options: WarmPoolOptions;
  readonly #log: Log;
  readonly #stocks = new Map<string, Stock>();
  readonly #stop = new AbortController();
  #busyUntil = 0;
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
    for (const stock of this.#stocks.values()) for (const id of stock.ready.splice(0)) await this.#options.discard(id);
  }

  /** A sandbox of the kind that is ready, or undefined; either way the demand is noted. */
  take(kind: WarmKind): string | undefined {
    if (this.#options.most === 0 || this.#stop.signal.aborted) return undefined;
    const stock = this.#stockOf(kind);
    const now = Date.now();
    stock.lastUsedAt = now;
    stock.demand.push(now);
    this.#busyUntil = now + QUIET_MS;
    this.#wake();
    return stock.ready.shift();
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

  /** Holds back while a create that could not be served from here boots. */
  async whileCreating<T>(work: () => Promise<T>): Promise<T> {
    this.#creates++;
    try {
      return await work();
    } finally {
      this.#creates--;
      this.#busyUntil = Date.now() + QUIET_MS;
    }
  }

  #stockOf(kind: WarmKind): Stock {
    const key = createHash('sha256').update(JSON.stringify(kind)).digest('hex');
    let stock = this.#stocks.get(key);
    if (stock === undefined) {
      stock = { kind, ready: [], demand: [], lastUsedAt: Date.now() };
      this.#stocks.set(key, stock);
    }
    return stock;
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#round();
      } catch (error) {
        this.#log.warn('a sandbox could not be booted ahead', { error: messageOf(error) });
        await this.#sleep(PAUSE_AFTER_FAILURE_MS);
      }
    }
  }

  async #round(): Promise<void> {
    const now = Date.now();
    const short = memoryIsShort();
    for (const [key, stock] of this.#stocks) {
      stock.demand = stock.demand.filter((at) => at > now - DEMAND_WINDOW_MS);
      if (now - stock.lastUsedAt > FORGET_MS && stock.ready.length === 0) this.#stocks.delete(key);
      const target = short ? 0 : this.#targetOf(stock, now);
      const surplus =
        stock.ready.length - Math.max(target, short ? 0 : Math.min(stock.ready.length, this.#lingering(stock, now)));
      for (const id of surplus > 0 ? stock.ready.splice(0, surplus) : []) await this.#options.discard(id);
    }
    const wanting = short
      ? undefined
      : [...this.#stocks.values()].find((stock) => stock.ready.length < this.#targetOf(stock, now));
    if (wanting === undefined) return this.#sleep(ROUND_MS);
    if (this.#creates > 0 || now < this.#busyUntil) return this.#sleep(QUIET_MS);
    const id = await this.#options.boot(wanting.kind);
    const wanted = !this.#stop.signal.aborted && [...this.#stocks.values()].includes(wanting);
    if (wanted) wanting.ready.push(id);
    else await this.#options.discard(id);
  }

  /** As many as were taken lately and one more, within the limit. */
  #targetOf(stock: Stock, now: number): number {
    if (now - stock.lastUsedAt > FORGET_MS) return 0;
    const recent = stock.demand.filter((at) => at > now - DEMAND_WINDOW_MS).length;
    return Math.min(this.#options.most, recent + 1);
  }

  /** What was booted for a wave of demand is kept for a minute: waves come again. */
  #lingering(stock: Stock, now: number): number {
    return now - stock.lastUsedAt < 60_000 ? this.#options.most : 0;
  }

  async #sleep(ms: number): Promise<void> {
    const woken = new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    await Promise.race([woken, delay(ms, undefined, { ref: false })]);
  }
}

function memoryIsShort(): boolean {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const read = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return read('MemAvailable') < read('MemTotal') * SPARE_SHARE;
}
