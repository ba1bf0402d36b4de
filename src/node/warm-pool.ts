import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
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
  /** The greatest demand of late. */
  peak: { count: number; at: number };
  lastUsedAt: number;
}

/** Demand is what was taken within this time: a pool of that size would have served it all without waiting. */
const DEMAND_WINDOW_MS = 10_000;
/** How long a wave of demand is remembered: waves come again. */
const PEAK_MS = 60_000;
/** A kind nobody asks for any more keeps one ready for so long, then none. */
const FORGET_MS = 30 * 60_000;
const ROUND_MS = 1_000;
/** Live traffic comes first: nothing is booted ahead while somebody waits for a create, nor for so long after one. */
const QUIET_MS = 25;
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
    const recent = demandOf(stock, now);
    if (recent >= stock.peak.count || now - stock.peak.at > PEAK_MS) stock.peak = { count: recent, at: now };
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
      stock = { kind, ready: [], demand: [], peak: { count: 0, at: 0 }, lastUsedAt: Date.now() };
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
      if (now - stock.lastUsedAt > FORGET_MS && stock.ready.length === 0) this.#stocks.delete(key);
      const surplus = stock.ready.length - (short ? 0 : this.#targetOf(stock, now));
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

  /** As many as were taken lately and one more, within the limits. */
  #targetOf(stock: Stock, now: number): number {
    if (now - stock.lastUsedAt > FORGET_MS) return 0;
    const peak = now - stock.peak.at < PEAK_MS ? stock.peak.count : 0;
    return Math.min(this.#options.most, Math.max(this.#options.least, peak, demandOf(stock, now) + 1));
  }

  async #sleep(ms: number): Promise<void> {
    const woken = new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    await Promise.race([woken, delay(ms, undefined, { ref: false })]);
  }
}

/** How many were taken within the window; older takings are forgotten. */
function demandOf(stock: Stock, now: number): number {
  const fresh = stock.demand.findIndex((at) => at > now - DEMAND_WINDOW_MS);
  stock.demand.splice(0, fresh < 0 ? stock.demand.length : fresh);
  return stock.demand.length;
}

function memoryIsShort(): boolean {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const read = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return read('MemAvailable') < read('MemTotal') * SPARE_SHARE;
}
