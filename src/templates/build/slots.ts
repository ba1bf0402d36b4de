/** A number of places; who finds none free waits for its turn. */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#free = places;
  }

  async take<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.#acquire(signal);
    try {
      signal.throwIfAborted();
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }

  async #acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    const leave = () => {
      const at = this.#waiting.indexOf(resolve);
      if (at === -1) return;
      this.#waiting.splice(at, 1);
      reject(signal.reason);
    };
    signal.addEventListener('abort', leave, { once: true });
    try {
      await promise;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }
}
