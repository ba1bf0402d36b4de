import type { SandbarError } from '../core/errors.ts';
import type { EndReason } from '../events/contract.ts';
import type { EgressConfig, NetworkConfig } from './network-config.ts';

/** The team that asks for something. */
export interface TeamRef {
  id: string;
  slug: string;
}

/** What the outside sees of a sandbox's life. */
export type PublicState = 'running' | 'paused';

/**
 * Where a sandbox is in its life. A row is written before the machine is touched, so that after a crash the state says what was
 * half done:
 * starting → running ⇄ (snapshotting) → pausing → paused → resuming → running; any → killing → gone.
 */
export type SandboxState = 'starting' | 'running' | 'snapshotting' | 'pausing' | 'paused' | 'resuming' | 'killing';

export interface VolumeMount {
  name: string;
  path: string;
}

/** One sandbox as the store keeps it. Times are milliseconds since 1970. */
export interface SandboxRow {
  id: string;
  teamId: string;
  templateId: string;
  buildId: string;
  /** First alias of the template at creation. */
  alias: string | null;
  state: SandboxState;
  /** Time of creation or of the last resume; each run has its own clock. */
  startedAt: number;
  /** Deadline of the present run; while paused, the time of the pause. */
  endAt: number;
  createdAt: number;
  cpuCount: number;
  memoryMb: number;
  diskSizeMb: number;
  envdVersion: string;
  runtime: string;
  secure: boolean;
  /** Token of in-sandbox requests; null when not secure. */
  envdAccessToken: string | null;
  /** Tokens issued earlier for this sandbox: they stay valid. */
  earlierTokens: string[];
  /** Token of proxied requests; null when public traffic is allowed. */
  trafficAccessToken: string | null;
  metadata: Record<string, string>;
  envVars: Record<string, string>;
  /** Time to live asked for at creation. */
  timeoutSeconds: number;
  autoPause: boolean;
  autoPauseMemory: boolean;
  autoResume: boolean;
  allowInternetAccess: boolean | null;
  network: NetworkConfig | null;
  volumeMounts: VolumeMount[];
  /** Whether the last pause kept its memory; only such a sandbox is woken by traffic. */
  memoryKept: boolean;
  /** Why it is being killed; null while it is not. */
  endReason: EndReason | null;
  /** Snapshot that the sandbox was made from; null when it was made from a template alone. */
  snapshotId: string | null;
}

export interface CreateSandbox {
  templateRef: string;
  timeoutSeconds: number;
  secure: boolean;
  autoPause: boolean;
  autoPauseMemory: boolean;
  autoResume: boolean;
  allowInternetAccess: boolean | null;
  network: NetworkConfig | null;
  metadata: Record<string, string>;
  envVars: Record<string, string>;
  volumeMounts: VolumeMount[];
}

export interface ListQuery {
  metadata: Record<string, string>;
  states: PublicState[];
  order: 'asc' | 'desc';
  startedAfter: number | null;
  /** Template ID the listed sandboxes were made from. */
  templateId: string | null;
  limit: number;
  cursor: ListCursor | null;
}

/** Position in a list: the last row already given. */
export interface ListCursor {
  startedAt: number;
  id: string;
}

export interface ListPage {
  rows: SandboxRow[];
  next: ListCursor | null;
  /** Running sandboxes that match, before paging. */
  totalRunning: number;
}

/** What a caller may do with sandboxes. Every method that names a team sees only that team's; all else is not_found. */
export interface Sandboxes {
  /** Makes a sandbox and resolves when it answers. */
  create(team: TeamRef, spec: CreateSandbox, signal?: AbortSignal): Promise<SandboxRow>;
  /** A running or paused sandbox. not_found while it is starting or being killed. */
  get(teamId: string, sandboxId: string): Promise<SandboxRow>;
  list(teamId: string, query: ListQuery): Promise<ListPage>;
  kill(teamId: string, sandboxId: string): Promise<void>;
  /** Sets the deadline to now + seconds; 0 is now. */
  setTimeout(teamId: string, sandboxId: string, seconds: number): Promise<void>;
  /** Moves the deadline to now + seconds where that is later. */
  refresh(teamId: string, sandboxId: string, seconds: number): Promise<void>;
  /** Extends a running sandbox (never shortens) or resumes a paused one. */
  connect(teamId: string, sandboxId: string, options: ResumeOptions): Promise<{ row: SandboxRow; resumed: boolean }>;
  /** Stops a running sandbox and keeps it. conflict when it is paused already. */
  pause(teamId: string, sandboxId: string, options: PauseOptions): Promise<void>;
  /** Lets a paused sandbox go on, with a new token beside the earlier ones. conflict when it runs. */
  resume(teamId: string, sandboxId: string, options: ResumeOptions & { autoPause?: boolean }): Promise<SandboxRow>;
  /** Replaces what a running sandbox may reach. In force when it resolves. conflict when it is not running. */
  setNetwork(teamId: string, sandboxId: string, change: NetworkChange): Promise<void>;
  /** Writes a running sandbox down under an id, as something sandboxes can be made from; it goes on. */
  writeSnapshot(
    teamId: string,
    sandboxId: string,
    snapshotId: string,
    options: { filesOnly: boolean },
  ): Promise<SandboxRow>;
  /** Copies of a running sandbox, each with a result of its own: the new sandbox, or why there is none. */
  fork(teamId: string, sandboxId: string, options: { timeoutSeconds: number; count: number }): Promise<ForkResult[]>;
}

/** The whole way out of a sandbox anew: what is left out is cleared. */
export interface NetworkChange {
  egress: EgressConfig;
  allowInternetAccess: boolean | null;
}

export interface PauseOptions {
  /** False keeps only its files. */
  memory: boolean;
  /** Refuses (unavailable) while the agent in it does not answer, instead of writing that state down. */
  requireAgent?: boolean;
}

export interface ResumeOptions {
  timeoutSeconds: number;
  /** False: boots with the files alone, whatever memory was kept. */
  memory: boolean;
}

export type ForkResult = { row: SandboxRow } | { error: SandbarError };

/** What the in-sandbox interface and the proxy know of a sandbox: found by id alone, since a request's token is the proof. */
export interface SandboxDirectory {
  /** The sandbox if traffic may reach it now; one that is paused and may be woken by traffic is given too, for the caller to `wake`. */
  lookup(sandboxId: string): Promise<SandboxRow | undefined>;
  /** Resumes a paused sandbox because of traffic, once however many ask, and gives it as it is then. */
  wake(sandboxId: string): Promise<SandboxRow>;
}
