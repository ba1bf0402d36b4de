import { createHash } from 'node:crypto';
import { messageOf } from '../core/errors.ts';
import type { Log, LogLevel } from '../core/log.ts';
import type { HistoryStore } from '../db/history-store.ts';
import type { SandboxEventQuery, SandboxEventStore } from '../db/sandbox-event-store.ts';
import type { SandboxLogQuery, SandboxLogStore } from '../db/sandbox-log-store.ts';
import type { SandboxEventRow, SandboxLogRow } from '../db/schema.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';
import type { EndReason, EventType, LifecycleObserver } from './contract.ts';
import { newEventId } from './event-id.ts';
import { NoteLimiter } from './note-limiter.ts';

export interface HistoryParts {
  store: HistoryStore;
  events: SandboxEventStore;
  logs: SandboxLogStore;
  /** The team of a sandbox that exists. */
  teamOf: (sandboxId: string) => Promise<string | undefined>;
  /** Hears of every event once it is written. */
  onEvent?: (event: SandboxEventRow) => void;
  log: Log;
}

export const LOG_LEVELS: readonly LogLevel[] = ['debug', 'info', 'warn', 'error'];

const DAY_MS = 86_400_000;
const RETENTION_MS = 7 * DAY_MS;
const EVENTS_PER_TEAM = 10_000;
const LINES_PER_SANDBOX = 1_000;
const LINES_IN_ALL = 200_000;
/** Lines after which a sandbox's log is looked at for its length. */
const TRIM_EVERY = 200;
const PRUNE_EVERY_MS = 600_000;
const ROWS_PER_INSERT = 100;
/** A write to disk costs the same for one row as for many, so it waits a moment for more. */
const GATHER_MS = 25;
const LONGEST_MESSAGE = 4_000;
const LARGEST_METADATA = 8_000;
/** A client that keeps a sandbox alive sets its timeout every few seconds: that is news once a minute. */
const UPDATED_EVERY_MS = 60_000;
/** Sandboxes remembered beyond what is stored; the oldest are forgotten first, at no harm. */
const REMEMBERED = 20_000;

interface Remembered {
  /** Time of the last line. */
  lastAt: number;
  /** Written since its log was looked at for its length. */
  lines: number;
  updatedAt: number;
}

/** The life of every sandbox, as events and as lines of its log, kept in the store and bounded there. */
export class History implements LifecycleObserver {
  readonly #parts: HistoryParts;
  readonly #limiter = new NoteLimiter();
  readonly #remembered = new Map<string, Remembered>();
  #events: SandboxEventRow[] = [];
  #lines: SandboxLogRow[] = [];
  #writing: Promise<void> | undefined;
  #hurry: () => void = () => undefined;
  #pruning: NodeJS.Timeout | undefined;

  constructor(parts: HistoryParts) {
    this.#parts = parts;
  }

  start(): void {
    const prune = () => {
      void this.#prune();
    };
    prune();
    this.#pruning = setInterval(prune, PRUNE_EVERY_MS);
    this.#pruning.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#pruning);
    await this.written();
  }

  /** Resolves when all that was told so far is in the store, or could not be written. */
  async written(): Promise<void> {
    this.#hurry();
    while (this.#writing !== undefined) await this.#writing;
  }

  /** Lines of a sandbox's log, up to the last that was told. */
  async listLines(query: SandboxLogQuery): Promise<SandboxLogRow[]> {
    await this.written();
    return this.#parts.logs.list(query);
  }

  /** Whether the team has a log of the sandbox, which may have ended. */
  async hasLines(sandboxId: string, teamId: string): Promise<boolean> {
    await this.written();
    return this.#parts.logs.has(sandboxId, teamId);
  }

  /** Events of a team, up to the last that was told. */
  async listEvents(query: SandboxEventQuery): Promise<SandboxEventRow[]> {
    await this.written();
    return this.#parts.events.list(query);
  }

  created(row: SandboxRow): void {
    this.#event(row, 'created', {});
    this.#line(row, 'info', 'sandbox created', { templateID: row.templateId, runtime: row.runtime });
  }

  paused(row: SandboxRow, { memory, by }: { memory: boolean; by: 'user' | 'timeout' }): void {
    this.#event(row, 'paused', { ...execution(row), memory, reason: by });
    const kept = memory ? 'its memory is kept' : 'only its files are kept';
    const why = by === 'timeout' ? 'sandbox paused at its deadline' : 'sandbox paused';
    this.#line(row, 'info', `${why}: ${kept}`, { reason: by, memory: String(memory) });
  }

  resumed(row: SandboxRow, how: { memory: boolean; detail: string; by: 'user' | 'traffic' }): void {
    const { memory, detail, by } = how;
    this.#event(row, 'resumed', { memory, reason: by, ...(detail !== '' && { detail }) });
    const why = by === 'traffic' ? 'sandbox resumed by traffic' : 'sandbox resumed';
    const fields = { reason: by, memory: String(memory) };
    if (memory) this.#line(row, 'info', `${why} with its memory`, fields);
    else this.#line(row, detail === '' ? 'info' : 'warn', `${why} with its files alone${colon(detail)}`, fields);
  }

  updated(row: SandboxRow, change: Record<string, string | number>): void {
    const known = this.#memory(row.id);
    if (Date.now() - known.updatedAt < UPDATED_EVERY_MS) return;
    known.updatedAt = Date.now();
    this.#event(row, 'updated', change);
  }

  snapshotted(row: SandboxRow, snapshotId: string): void {
    this.#event(row, 'snapshotted', { snapshot_id: snapshotId });
    this.#line(row, 'info', 'snapshot taken', { snapshotID: snapshotId });
  }

  async killed(row: SandboxRow, reason: EndReason, detail: string): Promise<void> {
    this.#event(row, 'killed', { ...execution(row), reason, ...(detail !== '' && { detail }) });
    const level = reason === 'user' || reason === 'timeout' ? 'info' : 'error';
    this.#line(row, level, `${END_WORDS[reason]}${colon(detail)}`, { reason });
    this.#remembered.delete(row.id);
    this.#limiter.forget(row.id);
    await this.written();
  }

  async wasKilled(row: SandboxRow): Promise<boolean> {
    const types = ['sandbox.lifecycle.killed'];
    const query = { teamId: row.teamId, sandboxId: row.id, types, offset: 0, limit: 1, ascending: false };
    return (await this.listEvents(query)).length > 0;
  }

  note(sandboxId: string, level: LogLevel, message: string, fields: Record<string, string> = {}): void {
    const { allowed, leftOut } = this.#limiter.ask(sandboxId, Date.now());
    if (!allowed) return;
    void this.#parts
      .teamOf(sandboxId)
      .then((teamId) => {
        if (teamId === undefined) return;
        if (leftOut > 0) this.#line({ id: sandboxId, teamId }, 'warn', `${leftOut} messages were left out`, {});
        this.#line({ id: sandboxId, teamId }, level, message, fields);
      })
      .catch((error) => this.#parts.log.warn('sandbox log', { sandbox: sandboxId, error: messageOf(error) }));
  }

  #event(row: SandboxRow, type: EventType, data: Record<string, unknown>): void {
    const now = Date.now();
    const metadata = JSON.stringify(row.metadata).length <= LARGEST_METADATA ? row.metadata : {};
    this.#events.push({
      id: newEventId(now),
      teamId: row.teamId,
      sandboxId: row.id,
      templateId: row.templateId,
      buildId: row.buildId,
      executionId: executionId(row),
      type: `sandbox.lifecycle.${type}`,
      data: { sandbox_metadata: metadata, ...data },
      createdAt: now,
    });
    this.#write();
  }

  #line(
    { id, teamId }: Pick<SandboxRow, 'id' | 'teamId'>,
    level: LogLevel,
    message: string,
    fields: Record<string, string>,
  ): void {
    const known = this.#memory(id);
    // A reader asks for what is later than the last line it saw, so no two lines may have the same time.
    known.lastAt = Math.max(Date.now(), known.lastAt + 1);
    this.#lines.push({
      sandboxId: id,
      createdAt: known.lastAt,
      teamId,
      level: LOG_LEVELS.indexOf(level),
      message: message.slice(0, LONGEST_MESSAGE),
      fields,
    });
    this.#write();
  }

  #memory(sandboxId: string): Remembered {
    let known = this.#remembered.get(sandboxId);
    if (known === undefined) {
      known = { lastAt: 0, lines: 0, updatedAt: 0 };
      this.#remembered.set(sandboxId, known);
      const oldest = this.#remembered.keys().next().value;
      if (this.#remembered.size > REMEMBERED && oldest !== undefined) this.#remembered.delete(oldest);
    }
    return known;
  }

  #write(): void {
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
      // Told after the last look.
      if (this.#events.length > 0 || this.#lines.length > 0) this.#write();
    });
  }

  /** Writes until nothing is left; what comes in meanwhile goes with the next round, so that a burst is few transactions. */
  async #writeAll(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#hurry = resolve;
      setTimeout(resolve, GATHER_MS);
    });
    while (this.#events.length > 0 || this.#lines.length > 0) {
      const events = this.#events.splice(0, ROWS_PER_INSERT);
      const lines = this.#lines.splice(0, ROWS_PER_INSERT);
      try {
        await this.#parts.store.insert(events, lines);
        for (const event of events) this.#parts.onEvent?.(event);
        await this.#trim(lines);
      } catch (error) {
        this.#parts.log.error('history cannot be written', { error: messageOf(error) });
      }
    }
  }

  async #trim(written: readonly SandboxLogRow[]): Promise<void> {
    for (const { sandboxId } of written) {
      const known = this.#remembered.get(sandboxId);
      if (known === undefined || ++known.lines < TRIM_EVERY) continue;
      known.lines = 0;
      await this.#parts.logs.trim(sandboxId, LINES_PER_SANDBOX);
    }
  }

  async #prune(): Promise<void> {
    try {
      await this.#parts.events.prune(Date.now() - RETENTION_MS, EVENTS_PER_TEAM);
      await this.#parts.logs.prune(Date.now() - RETENTION_MS, LINES_IN_ALL);
    } catch (error) {
      this.#parts.log.error('history cannot be pruned', { error: messageOf(error) });
    }
  }
}

const END_WORDS: Record<EndReason, string> = {
  user: 'sandbox killed on request',
  timeout: 'sandbox killed at its deadline',
  oom: 'sandbox killed for want of memory',
  crash: 'sandbox ended by itself',
  host: 'sandbox lost with the machine it ran on',
};

/** What the run that ends here was. */
function execution(row: SandboxRow): { execution: Record<string, unknown> } {
  return {
    execution: {
      started_at: new Date(row.startedAt).toISOString(),
      vcpu_count: row.cpuCount,
      memory_mb: row.memoryMb,
      execution_time: Math.max(0, (row.state === 'paused' ? row.endAt : Date.now()) - row.startedAt),
    },
  };
}

/** The id of one run: the same for every event of it. */
function executionId(row: Pick<SandboxRow, 'id' | 'startedAt'>): string {
  const hex = createHash('sha256').update(`${row.id} ${row.startedAt}`).digest('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)].join(
    '-',
  );
}

function colon(detail: string): string {
  return detail === '' ? '' : `: ${detail}`;
}
