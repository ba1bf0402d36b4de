import type { LogLevel } from '../core/log.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';

/** What ended a sandbox: a request, its deadline, its memory limit, its own failure, or the loss of the machine it ran on. */
export type EndReason = 'user' | 'timeout' | 'oom' | 'crash' | 'host';

export const EVENT_TYPES = ['created', 'paused', 'resumed', 'updated', 'snapshotted', 'killed'] as const;
export type EventType = (typeof EVENT_TYPES)[number];

/** Hears what happens to sandboxes. Nothing here fails or waits, so that history never gets in the way of what it is about. */
export interface LifecycleObserver {
  created(row: SandboxRow): void;
  /** `by` timeout: its deadline came and it was made to pause then. */
  paused(row: SandboxRow, how: { memory: boolean; by: 'user' | 'timeout' }): void;
  /** `detail` says why it came back without its memory, where that was not asked for. */
  resumed(row: SandboxRow, how: { memory: boolean; detail: string; by: 'user' | 'traffic' }): void;
  updated(row: SandboxRow, change: Record<string, string | number>): void;
  snapshotted(row: SandboxRow, snapshotId: string): void;
  /** Resolves when it is written: what killed a sandbox must be known also after a crash that follows. */
  killed(row: SandboxRow, reason: EndReason, detail: string): Promise<void>;
  /** Whether it was told already that the sandbox was killed. */
  wasKilled(row: SandboxRow): Promise<boolean>;
  /** A line for the sandbox's log. Lines beyond some dozens a minute are left out, and it says so. */
  note(sandboxId: string, level: LogLevel, message: string, fields?: Record<string, string>): void;
}

/** What a sandbox used at one moment. */
export interface UsageSample {
  cpuCount: number;
  /** Percent of all its processors together. */
  cpuUsedPct: number;
  memUsed: number;
  memTotal: number;
  memCache: number;
  diskUsed: number;
  diskTotal: number;
}

/** What a team did at one moment. */
export interface TeamSample {
  concurrentSandboxes: number;
  /** Sandboxes started a second. */
  sandboxStartRate: number;
}

export interface Timed<Sample> {
  /** Milliseconds since 1970. */
  at: number;
  sample: Sample;
}
