/** Counts the connections into each sandbox. */
export interface Admission {
  /** Counts one more; undefined when there are `limit` already. The function given back must be called when it ends. */
  enter(sandboxId: string, limit: number): Promise<Leave | undefined> | Leave | undefined;
}

export type Leave = () => void;

/** The count of this process, or of all that ask it. */
export class ConnectionCounts implements Admission {
  readonly #counts = new Map<string, number>();

  enter(sandboxId: string, limit: number): Leave | undefined {
    const count = this.#counts.get(sandboxId) ?? 0;
    if (count >= limit) return undefined;
    this.#counts.set(sandboxId, count + 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#leave(sandboxId);
    };
  }

  #leave(sandboxId: string): void {
    const count = this.#counts.get(sandboxId) ?? 0;
    if (count > 1) this.#counts.set(sandboxId, count - 1);
    else this.#counts.delete(sandboxId);
  }
}
