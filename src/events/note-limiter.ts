const WINDOW_MS = 60_000;
const NOTES_PER_WINDOW = 60;

interface Window {
  since: number;
  notes: number;
  leftOut: number;
}

/** Keeps one noisy sandbox from filling the log: so many notes a minute, the rest is counted. */
export class NoteLimiter {
  readonly #windows = new Map<string, Window>();

  /** Whether a note may be written, and how many were left out before it. */
  ask(sandboxId: string, now: number): { allowed: boolean; leftOut: number } {
    let window = this.#windows.get(sandboxId);
    if (window === undefined || now - window.since >= WINDOW_MS) {
      const leftOut = window?.leftOut ?? 0;
      window = { since: now, notes: 1, leftOut: 0 };
      this.#windows.set(sandboxId, window);
      return { allowed: true, leftOut };
    }
    if (window.notes < NOTES_PER_WINDOW) {
      window.notes++;
      return { allowed: true, leftOut: 0 };
    }
    window.leftOut++;
    return { allowed: false, leftOut: 0 };
  }

  forget(sandboxId: string): void {
    this.#windows.delete(sandboxId);
  }
}
