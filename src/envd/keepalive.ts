const DEFAULT_SECONDS = 90;
const MAX_SECONDS = 24 * 3600;

/** How long a stream may be silent, by its `Keepalive-Ping-Interval` header (seconds). */
export function keepaliveIntervalMs(header: string | null): number {
  const seconds = header !== null && /^\d{1,9}$/.test(header.trim()) ? Number(header) : 0;
  return (seconds > 0 ? Math.min(seconds, MAX_SECONDS) : DEFAULT_SECONDS) * 1000;
}

/** Tells when a silent stream owes its client a sign of life. */
export class Silence {
  readonly #intervalMs: number;
  #spokeAt = performance.now();

  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  /** Something was sent. */
  broken(): void {
    this.#spokeAt = performance.now();
  }

  /** Time left until a sign of life is due. */
  get leftMs(): number {
    return Math.max(0, Math.ceil(this.#spokeAt + this.#intervalMs - performance.now()));
  }
}
