import { setTimeout as delay } from 'node:timers/promises';
import type { BuildStore } from '../../db/build-store.ts';
import type { BuildLogRow } from '../../db/schema.ts';

export type BuildLogLevel = 'debug' | 'info' | 'warn' | 'error';

export const levelNumbers: Record<BuildLogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 };
export const levelNames: readonly BuildLogLevel[] = ['debug', 'info', 'warn', 'error'];

/** A line before it has a place in a log. */
export interface Saying {
  level: BuildLogLevel;
  message: string;
}

const FLUSH_MS = 100;
const LINE_BYTES = 8 * 1024;
/** Of output alone: what the build itself says always has room. */
const MOST_LINES = 20_000;
const ROWS_AT_ONCE = 500;

/** The log of one build. Lines are numbered as they come and written in batches; what was written can be read by anyone. */
export class BuildLog {
  readonly #store: Pick<BuildStore, 'appendLogs'>;
  readonly #buildId: string;
  #waiting: BuildLogRow[] = [];
  #position = 0;
  #outputLines = 0;
  #writing: Promise<void> | undefined;
  #closed = false;

  constructor(store: Pick<BuildStore, 'appendLogs'>, buildId: string) {
    this.#store = store;
    this.#buildId = buildId;
  }

  add(level: BuildLogLevel, message: string, step: string | null = null): void {
    const shown = message.replaceAll('\0', '').slice(0, LINE_BYTES);
    this.#waiting.push({
      buildId: this.#buildId,
      position: this.#position++,
      createdAt: Date.now(),
      level: levelNumbers[level],
      step,
      message: shown,
    });
    this.#writing ??= this.#writeSoon();
  }

  /** A line that a program printed. Past a number of them the rest is left out, which is said once. */
  addOutput(level: BuildLogLevel, message: string, step: string | null): void {
    this.#outputLines++;
    if (this.#outputLines < MOST_LINES) this.add(level, message, step);
    else if (this.#outputLines === MOST_LINES)
      this.add('warn', `… output beyond ${MOST_LINES} lines is left out`, step);
  }

  /** Resolves when every line that was added is written. Nothing may be added after it. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#writing;
    await this.#write();
  }

  async #writeSoon(): Promise<void> {
    if (!this.#closed) await delay(FLUSH_MS);
    this.#writing = undefined;
    await this.#write();
  }

  async #write(): Promise<void> {
    while (this.#waiting.length > 0) {
      const rows = this.#waiting.splice(0, ROWS_AT_ONCE);
      await this.#store.appendLogs(rows);
    }
  }
}
