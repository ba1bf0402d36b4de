import { readFileSync } from 'node:fs';

/** Shorter than this the kernel's own counting, in hundredths of a second, says nothing. */
const WINDOW_MS = 50;
/** A look back further than this tells of other times. */
const STALE_MS = 1_500;
/** With less of the processors' time to spare, work in the background would take it from somebody. */
const SPARE_SHARE = 0.12;

interface Look {
  at: number;
  idle: number;
  total: number;
}

/** Whether the machine's processors have time for work that can wait. */
export class Processors {
  readonly #read: () => { idle: number; total: number };
  #last: Look = { at: 0, idle: 0, total: 0 };
  #busy = false;

  constructor(read: () => { idle: number; total: number } = readTimes) {
    this.#read = read;
  }

  /** Whether hardly any of their time was left over lately. Until a moment has been looked at, it counts as busy. */
  isBusy(now: number = Date.now()): boolean {
    const passed = now - this.#last.at;
    if (passed < WINDOW_MS) return this.#busy;
    const { at: _, ...before } = this.#last;
    const times = this.#read();
    this.#last = { at: now, ...times };
    const total = times.total - before.total;
    this.#busy = passed > STALE_MS || total <= 0 || (times.idle - before.idle) / total < SPARE_SHARE;
    return this.#busy;
  }
}

/** Time of all processors since the machine started: idle, and altogether. */
function readTimes(): { idle: number; total: number } {
  const [line = ''] = readFileSync('/proc/stat', 'utf8').split('\n', 1);
  // cpu user nice system idle iowait irq softirq steal guest guest_nice; guests are counted in user already.
  const times = line.trim().split(/\s+/).slice(1, 9).map(Number);
  return { idle: (times[3] ?? 0) + (times[4] ?? 0), total: times.reduce((sum, time) => sum + time, 0) };
}
