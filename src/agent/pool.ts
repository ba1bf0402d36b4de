import { setTimeout as delay } from 'node:timers/promises';
import { SandbarError } from '../core/errors.ts';
import { type AgentTarget, asError, Connection, ConnectionLost } from './connection.ts';

/** Connections kept open for the next request. */
const MAX_IDLE = 6;
const IDLE_MS = 30_000;
/** Connections being opened at a time: the agent lets only so many wait that have not shown the secret yet. */
const MAX_OPENING = 32;
/** How long a waiting request tries to get back to a sandbox that is said to be alive. */
const RESUME_WINDOW_MS = 15_000;
const QUIESCE_LIMIT_MS = 10_000;

/** Whether a request may be made a second time when its connection broke: only if doing it twice is the same as once. */
export type Repeat = 'never' | 'once';

interface First {
  request: (connection: Connection) => Promise<unknown>;
  underWay: Promise<void> | undefined;
}

export interface Lease {
  connection: Connection;
  release(): void;
}

/**
 * The connections to one agent, and the order among them: requests that end by themselves are waited for before a checkpoint,
 * requests that wait are taken away and made again afterwards.
 */
export class ConnectionPool {
  #target: AgentTarget;
  /** Whether one connection is kept for good: to connect anew costs more than to hold a socket. */
  readonly #keepOne: boolean;
  readonly #all = new Set<Connection>();
  readonly #idle: Connection[] = [];
  #opening = 0;
  /** Requests that wait for their turn to open a connection. */
  readonly #toOpen: (() => void)[] = [];
  /** Connections on which a request waits that may be made again. */
  readonly #waiting = new Set<Connection>();
  readonly #tunnels = new Set<{ destroy(): void }>();
  /** Set while requests are held back. */
  #gate: PromiseWithResolvers<void> | undefined;
  #running = 0;
  #first: First | undefined;
  #drained: (() => void) | undefined;
  readonly #closing = new AbortController();

  constructor(target: AgentTarget, { keepOne = true }: { keepOne?: boolean } = {}) {
    this.#target = target;
    this.#keepOne = keepOne;
  }

  get target(): AgentTarget {
    return this.#target;
  }

  /** Aborts when the pool is closed. */
  get ending(): AbortSignal {
    return this.#closing.signal;
  }

  /** True while requests are held back. */
  get held(): boolean {
    return this.#gate !== undefined;
  }

  /** Puts a request before every other that is to come. It is made with the first of them, and again by the next while it fails. */
  putFirst(request: (connection: Connection) => Promise<unknown>): void {
    this.#first = { request, underWay: undefined };
  }

  /** Makes the request that was put first, unless that is done. */
  async settled(): Promise<void> {
    const first = this.#first;
    if (first === undefined) return;
    first.underWay ??= this.#once('once', undefined, first.request).then(
      () => {
        if (this.#first === first) this.#first = undefined;
      },
      (error: unknown) => {
        first.underWay = undefined;
        throw error;
      },
    );
    await first.underWay;
  }

  /** A request that ends by itself. */
  async once<T>(
    repeat: Repeat,
    signal: AbortSignal | undefined,
    request: (connection: Connection) => Promise<T>,
  ): Promise<T> {
    await this.#passFirst(signal);
    return this.#once(repeat, signal, request);
  }

  async #once<T>(
    repeat: Repeat,
    signal: AbortSignal | undefined,
    request: (connection: Connection) => Promise<T>,
  ): Promise<T> {
    await this.#passGate(signal);
    this.#running++;
    try {
      const kept = this.#takeIdle();
      if (kept !== undefined) {
        try {
          return await this.#use(kept, request);
        } catch (error) {
          // A kept connection may have died unnoticed. A fresh one that fails tells the truth.
          if (!(error instanceof ConnectionLost) || repeat === 'never' || this.#closing.signal.aborted) throw error;
        }
      }
      return await this.#use(await this.#open(signal), request);
    } finally {
      this.#running--;
      if (this.#running === 0) this.#drained?.();
    }
  }

  /** A request that waits for something and can be made again from where it was: `request` is called anew after every lost connection. */
  async resumable<T>(signal: AbortSignal | undefined, request: (connection: Connection) => Promise<T>): Promise<T> {
    const patience = new Patience(this, signal);
    for (;;) {
      let lease: Lease | undefined;
      try {
        lease = await this.lease(signal);
        return await request(lease.connection);
      } catch (error) {
        await patience.afterLoss(error);
      } finally {
        lease?.release();
      }
    }
  }

  /**
   * Two requests sent together on one connection: the first ends by itself, the second then waits. Resolves when the first is answered. The
   * second rejects when its connection is lost or taken away: it is for the caller to make it again.
   */
  async both<A, B>(
    repeat: Repeat,
    signal: AbortSignal | undefined,
    requests: (connection: Connection) => { first: Promise<A>; second: Promise<B> },
  ): Promise<{ first: A; second: Promise<B> }> {
    return this.once(repeat, undefined, async (connection) => {
      const { first, second } = requests(connection);
      // Told when it is looked at, which a failure of the first comes before.
      second.catch(() => undefined);
      return { first: await first, second: this.#whileWaiting(connection, second, signal) };
    });
  }

  /** A connection for a request that may be made again; a checkpoint takes it away. */
  async lease(signal: AbortSignal | undefined): Promise<Lease> {
    for (;;) {
      await this.#passFirst(signal);
      await this.#passGate(signal);
      const connection = this.#takeIdle() ?? (await this.#open(signal));
      if (this.#gate !== undefined) {
        connection.destroy();
        continue;
      }
      this.#waiting.add(connection);
      const release = () => {
        this.#waiting.delete(connection);
        this.#giveBack(connection);
      };
      return { connection, release };
    }
  }

  /** A connection that stops being one of requests. It ends with the others at a checkpoint. */
  async tunnel<T extends { destroy(): void; once(event: 'close', listener: () => void): unknown }>(
    signal: AbortSignal | undefined,
    request: (connection: Connection) => Promise<T>,
  ): Promise<T> {
    const tunnel = await this.once('once', signal, request);
    this.#tunnels.add(tunnel);
    tunnel.once('close', () => this.#tunnels.delete(tunnel));
    return tunnel;
  }

  /** Holds new requests back, waits for running ones and closes every connection. */
  async quiesce(limitMs: number = QUIESCE_LIMIT_MS): Promise<void> {
    this.#gate ??= Promise.withResolvers<void>();
    for (const connection of [...this.#waiting]) connection.destroy();
    if (this.#running > 0) {
      const drained = Promise.withResolvers<void>();
      this.#drained = drained.resolve;
      const limit = setTimeout(drained.resolve, limitMs);
      await drained.promise;
      clearTimeout(limit);
      this.#drained = undefined;
    }
    this.#closeConnections(new ConnectionLost('the sandbox was being checkpointed'));
  }

  /** Lets everything go on that was held back. */
  reopen(): void {
    this.#gate?.resolve();
    this.#gate = undefined;
  }

  /** Points every new connection elsewhere. */
  retarget(target: AgentTarget): void {
    this.#target = target;
    for (const connection of this.#idle.splice(0)) connection.destroy();
  }

  setSecret(secret: Buffer): void {
    this.#target = { ...this.#target, secret };
  }

  /** Ends everything, for good. */
  close(reason: Error): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(reason);
    this.reopen();
    this.#closeConnections(reason);
  }

  async #passFirst(signal: AbortSignal | undefined): Promise<void> {
    if (this.#first === undefined) return;
    await settledOrAborted(this.settled(), this.#untilClosed(signal));
    this.#closing.signal.throwIfAborted();
    signal?.throwIfAborted();
  }

  async #passGate(signal: AbortSignal | undefined): Promise<void> {
    this.#closing.signal.throwIfAborted();
    signal?.throwIfAborted();
    while (this.#gate !== undefined) {
      await settledOrAborted(this.#gate.promise, this.#untilClosed(signal));
      this.#closing.signal.throwIfAborted();
      signal?.throwIfAborted();
    }
  }

  #untilClosed(signal: AbortSignal | undefined): AbortSignal {
    return signal ? AbortSignal.any([signal, this.#closing.signal]) : this.#closing.signal;
  }

  #takeIdle(): Connection | undefined {
    for (let connection = this.#idle.pop(); connection !== undefined; connection = this.#idle.pop()) {
      if (connection.usable) {
        connection.expireAfter(0);
        return connection;
      }
    }
    return undefined;
  }

  async #open(signal: AbortSignal | undefined): Promise<Connection> {
    if (this.#opening >= MAX_OPENING) await new Promise<void>((resolve) => this.#toOpen.push(resolve));
    else this.#opening++;
    let connection: Connection;
    try {
      connection = await Connection.open(this.#target, signal);
    } finally {
      // The turn is handed on to whoever has waited longest.
      const next = this.#toOpen.shift();
      if (next !== undefined) next();
      else this.#opening--;
    }
    if (this.#closing.signal.aborted) {
      connection.destroy();
      throw this.#closing.signal.reason;
    }
    this.#all.add(connection);
    connection.onceClosed(() => {
      this.#all.delete(connection);
      const at = this.#idle.indexOf(connection);
      if (at >= 0) this.#idle.splice(at, 1);
    });
    return connection;
  }

  async #use<T>(connection: Connection, request: (connection: Connection) => Promise<T>): Promise<T> {
    try {
      return await request(connection);
    } finally {
      this.#giveBack(connection);
    }
  }

  async #whileWaiting<T>(connection: Connection, answer: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const abort = () => connection.destroy(asError(signal?.reason));
    this.#waiting.add(connection);
    signal?.addEventListener('abort', abort, { once: true });
    if (signal?.aborted) abort();
    try {
      return await answer;
    } finally {
      signal?.removeEventListener('abort', abort);
      this.#waiting.delete(connection);
      this.#giveBack(connection);
    }
  }

  #giveBack(connection: Connection): void {
    if (!connection.usable) return;
    if (this.#gate !== undefined || this.#idle.length >= MAX_IDLE) {
      connection.destroy();
      return;
    }
    if (this.#idle.length > 0 || !this.#keepOne) connection.expireAfter(IDLE_MS);
    this.#idle.push(connection);
  }

  #closeConnections(reason: Error): void {
    for (const connection of [...this.#all]) connection.destroy(reason);
    for (const tunnel of [...this.#tunnels]) tunnel.destroy();
    this.#idle.length = 0;
  }
}

/** Decides whether a request that lost its connection is made again, and when. */
export class Patience {
  readonly #pool: ConnectionPool;
  readonly #signal: AbortSignal | undefined;
  #lostAt: number | undefined;
  #attempts = 0;

  constructor(pool: ConnectionPool, signal: AbortSignal | undefined) {
    this.#pool = pool;
    this.#signal = signal;
  }

  /** The request got somewhere: the window begins anew at the next loss. */
  reset(): void {
    this.#lostAt = undefined;
    this.#attempts = 0;
  }

  /** Resolves when the request should be made again; rejects with the error when it should not. */
  async afterLoss(error: unknown): Promise<void> {
    if (!(error instanceof ConnectionLost)) throw error;
    this.#signal?.throwIfAborted();
    this.#pool.ending.throwIfAborted();
    if (this.#pool.held) return this.reset();
    this.#lostAt ??= Date.now();
    if (Date.now() - this.#lostAt > RESUME_WINDOW_MS) throw error;
    const signal = this.#signal ? AbortSignal.any([this.#signal, this.#pool.ending]) : this.#pool.ending;
    // The first attempt comes at once: a checkpoint has just reset the connection and the agent is there.
    const waitMs = this.#attempts === 0 ? 0 : Math.min(10 * 2 ** this.#attempts, 500);
    this.#attempts++;
    await delay(waitMs, undefined, { signal }).catch(() => undefined);
  }
}

/** The failure of every request after the sandbox is gone. */
export function closedError(reason: string): SandbarError {
  return new SandbarError('unavailable', reason);
}

async function settledOrAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  const aborted = Promise.withResolvers<void>();
  const abort = () => aborted.resolve();
  signal.addEventListener('abort', abort, { once: true });
  try {
    await Promise.race([promise, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
