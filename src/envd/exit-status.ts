import type { ProcessEnd } from '../agent/contract.ts';

/** How an end of a process is told: Go's words, which clients show and some compare. */
export interface ExitStatus {
  /** -1 for a death by signal. */
  exitCode: number;
  /** The process ended by itself. */
  exited: boolean;
  status: string;
  /** The same text where it was not a success. */
  error: string | undefined;
}

const signalTexts: Record<number, string> = {
  1: 'hangup',
  2: 'interrupt',
  3: 'quit',
  4: 'illegal instruction',
  5: 'trace/breakpoint trap',
  6: 'aborted',
  7: 'bus error',
  8: 'floating point exception',
  9: 'killed',
  10: 'user defined signal 1',
  11: 'segmentation fault',
  12: 'user defined signal 2',
  13: 'broken pipe',
  14: 'alarm clock',
  15: 'terminated',
};

export function exitStatusOf(end: ProcessEnd): ExitStatus {
  if (end.signal !== 0) {
    const status = `signal: ${signalTexts[end.signal] ?? `signal ${end.signal}`}`;
    return { exitCode: -1, exited: false, status, error: status };
  }
  const status = `exit status ${end.exitCode}`;
  return { exitCode: end.exitCode, exited: true, status, error: end.exitCode === 0 ? undefined : status };
}
