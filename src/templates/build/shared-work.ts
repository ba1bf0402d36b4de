/** Work of one key that several want at the same time: it is done once, and all of them hear what it says while it goes on. */
export class SharedWork<Result, Saying> {
  readonly #going = new Map<string, Going<Result, Saying>>();

  /**
   * Begins the work, or joins where it is under way: what was said before is said again to whoever joins. When the signal of one that waits aborts, it
   * leaves; when the last has left, the work is given up.
   */
  async do(
    key: string,
    begin: (say: (saying: Saying) => void, signal: AbortSignal) => Promise<Result>,
    hear: (saying: Saying) => void,
    signal: AbortSignal,
  ): Promise<Result> {
    signal.throwIfAborted();
    const going = this.#going.get(key) ?? this.#begin(key, begin);
    for (const saying of going.said) hear(saying);
    going.hearers.add(hear);
    const { promise: left, reject } = Promise.withResolvers<never>();
    const leave = () => reject(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
    try {
      return await Promise.race([going.result, left]);
    } finally {
      signal.removeEventListener('abort', leave);
      going.hearers.delete(hear);
      if (going.hearers.size === 0 && this.#going.get(key) === going) {
        // Given up rather than ended: whoever comes next begins anew.
        this.#going.delete(key);
        going.giveUp.abort(signal.reason);
      }
    }
  }

  #begin(
    key: string,
    begin: (say: (saying: Saying) => void, signal: AbortSignal) => Promise<Result>,
  ): Going<Result, Saying> {
    const giveUp = new AbortController();
    const said: Saying[] = [];
    const hearers = new Set<(saying: Saying) => void>();
    const say = (saying: Saying) => {
      said.push(saying);
      for (const hear of hearers) hear(saying);
    };
    const result = begin(say, giveUp.signal).finally(() => {
      if (this.#going.get(key) === going) this.#going.delete(key);
    });
    const going: Going<Result, Saying> = { result, said, hearers, giveUp };
    // Heard by those that wait; when nobody does any more, nobody needs to.
    result.catch(() => undefined);
    this.#going.set(key, going);
    return going;
  }
}

interface Going<Result, Saying> {
  result: Promise<Result>;
  said: Saying[];
  hearers: Set<(saying: Saying) => void>;
  giveUp: AbortController;
}
