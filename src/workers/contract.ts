import type { LogLevel } from '../core/log.ts';
import type { SandboxUsage } from '../envd/status.ts';
import type { GuestAccess } from '../node/contract.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';

/** What a worker is told before it serves. */
export interface WorkerSettings {
  /** Domain of sandbox URLs; may carry a port. */
  domain: string;
  /** PEM; undefined for clear text. */
  tls: { cert: string; key: string } | undefined;
  logLevel: LogLevel;
  /** Where the control plane answers, a socket of this machine. */
  controlPlane: string;
}

/** What a worker asks of the main process. */
export type MainSurface = {
  /** It can take connections. */
  ready(): void;
  /** It has a connection that was handed over. */
  took(connection: number): void;
  /** As the directory answers it; `know` comes before the answer where the worker does not have the way in yet. */
  lookup(sandboxId: string): Promise<SandboxRow | undefined>;
  wake(sandboxId: string): Promise<SandboxRow>;
  usage(sandboxId: string): Promise<SandboxUsage | undefined>;
  /** Counts a connection into a sandbox: its number, to `leave` with; undefined when there are `limit`. */
  enter(sandboxId: string, limit: number): Promise<number | undefined>;
  leave(number: number): void;
  /** Waits for a turn: its number, to end it with. */
  takeTurn(key: string, limitMs: number): Promise<number>;
  endTurn(number: number): void;
};

/** What the main process asks of a worker. */
export type WorkerSurface = {
  start(settings: WorkerSettings): void;
  /** The way into a sandbox. */
  know(sandboxId: string, access: GuestAccess): void;
  hold(sandboxId: string): Promise<void>;
  reopen(sandboxId: string): void;
  cut(sandboxId: string, reason: string): void;
  end(sandboxId: string, reason: string): void;
  /** Takes no more connections, lets requests under way end for so long; resolves when all have. */
  stop(graceMs: number): Promise<void>;
};

/** The message that comes with a connection to serve, of which nothing has been read. */
export interface ConnectionMessage {
  /** To `took` it with. */
  connection: number;
}
