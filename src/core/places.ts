/** A number of places for work. Who finds none free waits, and is let in in the order of coming. */
export class Places {
  readonly #waiting: (() => void)[] = [];
  /** Those who let others go first. */
  readonly #polite = new Set<() => void>();
  readonly #heldMs: number;
  #free: number;

  /** Work that takes longer than `heldMs` goes on without its place, so that what is slow does not keep out what is quick. */
  constructor(count: number, heldMs: number) {
    this.#free = count;
    this.#heldMs = heldMs;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let held = true;
    const leave = () => {
      if (!held) return;
      held = false;
      // The place is handed on, so that nobody who comes now is before those who wait.
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
      if (this.#waiting.length === 0) for (const goOn of this.#polite) goOn();
    };
    const tooLong = setTimeout(leave, this.#heldMs);
    try {
      return await work();
    } finally {
      clearTimeout(tooLong);
      leave();
    }
  }

  /** Resolves when nobody waits for a place, after `longestMs` at the latest. */
  async letOthersIn(longestMs: number): Promise<void> {
    if (this.#waiting.length === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const longEnough = setTimeout(resolve, longestMs);
    this.#polite.add(resolve);
    await promise;
    clearTimeout(longEnough);
    this.#polite.delete(resolve);
  }
}
