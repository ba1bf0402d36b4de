import type { Config } from '../core/config.ts';
import { messageOf, SandbarError, toSandbarError } from '../core/errors.ts';
import { newSandboxId, newUuid } from '../core/ids.ts';
import { KeyedQueue } from '../core/keyed-queue.ts';
import type { Log } from '../core/log.ts';
import type { SandboxStore } from '../db/sandbox-store.ts';
import type { TeamStore } from '../db/team-store.ts';
import type { TemplateStore } from '../db/template-store.ts';
import { fromNode, type NodeClient } from '../node/client.ts';
import type {
  CreateSandbox,
  ForkResult,
  ListPage,
  ListQuery,
  ResumeOptions,
  SandboxDirectory,
  Sandboxes,
  SandboxRow,
} from './contract.ts';
import { Deadlines } from './deadlines.ts';
import { guestConfig, PIDS_MAX } from './guest-config.ts';
import { forkedRow, freshToken, newRow } from './new-row.ts';
import { reconcile } from './reconcile.ts';

export interface SandboxServiceParts {
  config: Pick<Config, 'runtime' | 'maxSandboxes' | 'maxTimeoutSeconds'>;
  sandboxes: SandboxStore;
  templates: TemplateStore;
  teams: TeamStore;
  node: NodeClient;
  log: Log;
}

/** Why a sandbox is ended. */
type KillReason = 'user' | 'timeout';

/** Copies of one sandbox that are brought up side by side. */
const FORKS_AT_ONCE = 4;
/** Shortest life that traffic gives to a sandbox it wakes. */
const WAKE_SECONDS = 300;

/**
 * The life of sandboxes. A row is written before the machine is touched, so that after a crash it says what was half done; one queue
 * a sandbox orders its transitions.
 */
export class SandboxService implements Sandboxes, SandboxDirectory {
  readonly #parts: SandboxServiceParts;
  readonly #store: SandboxStore;
  readonly #node: NodeClient;
  readonly #log: Log;
  readonly #queue = new KeyedQueue();
  readonly #deadlines: Deadlines;
  readonly #stop = new AbortController();

  constructor(parts: SandboxServiceParts) {
    this.#parts = parts;
    this.#store = parts.sandboxes;
    this.#node = parts.node;
    this.#log = parts.log;
    this.#deadlines = new Deadlines(parts.sandboxes, (row) => this.#expire(row), parts.log);
  }

  /** Makes rows and machine agree after a restart, then keeps the deadlines. */
  async start(): Promise<void> {
    await this.#watchNode();
    await reconcile(this.#store, this.#node, this.#log);
    await this.#deadlines.start();
  }

  async stop(): Promise<void> {
    this.#deadlines.stop();
    await this.#queue.idle();
    this.#stop.abort();
  }

  async create(teamId: string, spec: CreateSandbox, signal?: AbortSignal): Promise<SandboxRow> {
    const team = await this.#parts.teams.getTeam(teamId);
    if (team === undefined) throw new SandbarError('unauthenticated', 'the team of this key is gone');
    const resolved = await this.#parts.templates.resolve(spec.templateRef, team);
    const row = newRow(newSandboxId(), teamId, spec, resolved, this.#parts.config.runtime);
    const running = await this.#insertAndBoot(row, signal);
    void this.#parts.templates
      .bumpSpawnCount(row.templateId, running.startedAt)
      .catch((error) => this.#log.warn('spawn count', { error: messageOf(error) }));
    return running;
  }

  async get(teamId: string, sandboxId: string): Promise<SandboxRow> {
    const row = await this.#store.get(sandboxId);
    if (row === undefined || row.teamId !== teamId || row.state === 'starting' || row.state === 'killing')
      throw missing(sandboxId);
    return row;
  }

  list(teamId: string, query: ListQuery): Promise<ListPage> {
    return this.#store.list(teamId, query);
  }

  async kill(teamId: string, sandboxId: string): Promise<void> {
    await this.get(teamId, sandboxId);
    await this.#kill(sandboxId, 'user');
  }

  async setTimeout(teamId: string, sandboxId: string, seconds: number): Promise<void> {
    const row = await this.#running(teamId, sandboxId);
    const longest = this.#longestEnd(row);
    if (Date.now() > longest) throw new SandbarError('invalid', 'Max instance length exceeded');
    await this.#setDeadline(row, Math.min(Date.now() + seconds * 1000, longest));
  }

  async refresh(teamId: string, sandboxId: string, seconds: number): Promise<void> {
    await this.#extend(await this.#running(teamId, sandboxId), seconds);
  }

  async connect(
    teamId: string,
    sandboxId: string,
    options: ResumeOptions,
  ): Promise<{ row: SandboxRow; resumed: boolean }> {
    await this.get(teamId, sandboxId);
    return this.#queue.run(sandboxId, async () => {
      const row = await this.get(teamId, sandboxId);
      if (row.state !== 'paused') return { row: await this.#extend(row, options.timeoutSeconds), resumed: false };
      return { row: await this.#resume(row, options), resumed: true };
    });
  }

  async pause(teamId: string, sandboxId: string, options: { memory: boolean }): Promise<void> {
    const row = await this.get(teamId, sandboxId);
    if (row.state === 'paused')
      throw new SandbarError('conflict', `Error pausing sandbox - sandbox '${sandboxId}' is already paused`);
    await this.#queue.run(sandboxId, async () => {
      const now = await this.get(teamId, sandboxId);
      // Asked for twice at the same time: the other one did it.
      if (now.state === 'paused') return;
      await this.#pause(now, options.memory);
    });
  }

  async resume(
    teamId: string,
    sandboxId: string,
    options: ResumeOptions & { autoPause?: boolean },
  ): Promise<SandboxRow> {
    await this.get(teamId, sandboxId);
    return this.#queue.run(sandboxId, async () => {
      const row = await this.get(teamId, sandboxId);
      if (row.state !== 'paused') throw new SandbarError('conflict', `Sandbox ${sandboxId} is already running`);
      const token = freshToken(row);
      const { autoPause = row.autoPause } = options;
      await this.#store.update(sandboxId, { ...token, autoPause });
      return this.#resume({ ...row, ...token, autoPause }, options);
    });
  }

  async writeSnapshot(teamId: string, sandboxId: string, snapshotId: string): Promise<SandboxRow> {
    const row = await this.#running(teamId, sandboxId);
    await this.#snapshotting(row, () => this.#node.snapshotSandbox({ sandboxId, snapshotId }));
    return row;
  }

  async fork(
    teamId: string,
    sandboxId: string,
    options: { timeoutSeconds: number; count: number },
  ): Promise<ForkResult[]> {
    const row = await this.get(teamId, sandboxId);
    if (row.state === 'paused')
      throw new SandbarError('conflict', `Sandbox '${sandboxId}' is paused and cannot be forked; resume it first`);
    const snapshotId = `fork-${newUuid()}`;
    await this.#snapshotting(row, () => this.#node.snapshotSandbox({ sandboxId, snapshotId }));
    try {
      return await this.#bringUpForks(row, snapshotId, options);
    } finally {
      await this.#node.removeSnapshot({ snapshotId });
    }
  }

  async lookup(sandboxId: string): Promise<SandboxRow | undefined> {
    const row = await this.#store.get(sandboxId);
    if (row === undefined || row.state === 'starting' || row.state === 'killing') return undefined;
    if (row.state === 'running' || row.state === 'snapshotting') return row;
    return row.autoResume && row.autoPauseMemory ? row : undefined;
  }

  wake(sandboxId: string): Promise<SandboxRow> {
    return this.#queue.run(sandboxId, async () => {
      const row = await this.#store.get(sandboxId);
      if (row === undefined) throw missing(sandboxId);
      if (row.state !== 'paused') return row;
      const longest = this.#parts.config.maxTimeoutSeconds;
      const timeoutSeconds = Math.min(Math.max(WAKE_SECONDS, row.timeoutSeconds), longest);
      return this.#resume(row, { timeoutSeconds, memory: true });
    });
  }

  /** Takes a place of the team, boots, and makes the row running. A failure leaves nothing. */
  async #insertAndBoot(row: SandboxRow, signal?: AbortSignal): Promise<SandboxRow> {
    const limit = this.#parts.config.maxSandboxes;
    if (!(await this.#store.insertWithin(row, limit)))
      throw new SandbarError(
        'rate_limited',
        `you have reached the maximum number of concurrent E2B sandboxes (${limit}). Kill some of them or raise SANDBAR_MAX_SANDBOXES.`,
      );
    return this.#queue.run(row.id, async () => {
      try {
        await this.#boot(row, signal);
      } catch (error) {
        await this.#store.delete(row.id);
        throw fromNode(error);
      }
      const startedAt = Date.now();
      const endAt = startedAt + row.timeoutSeconds * 1000;
      const running = await this.#store.compareAndSetState(row.id, ['starting'], 'running', { startedAt, endAt });
      if (!running) {
        await this.#node.destroySandbox({ sandboxId: row.id });
        throw missing(row.id);
      }
      this.#deadlines.note(endAt);
      return { ...row, state: 'running', startedAt, endAt };
    });
  }

  async #boot(row: SandboxRow, signal?: AbortSignal): Promise<void> {
    const build = await this.#parts.templates.getBuild(row.buildId);
    if (build === undefined) throw new SandbarError('not_found', `build ${row.buildId} is gone`);
    await this.#node.createSandbox(
      {
        sandboxId: row.id,
        runtime: row.runtime,
        templateId: row.templateId,
        buildId: row.buildId,
        rootFs: { layers: build.layers },
        resources: { cpuCount: row.cpuCount, memoryMb: row.memoryMb, diskSizeMb: row.diskSizeMb, pidsMax: PIDS_MAX },
        guest: guestConfig(row, build),
        snapshotId: row.snapshotId ?? '',
      },
      { ...(signal !== undefined && { signal }) },
    );
  }

  async #pause(row: SandboxRow, memory: boolean): Promise<void> {
    if (!(await this.#store.compareAndSetState(row.id, ['running'], 'pausing'))) throw missing(row.id);
    try {
      await this.#node.pauseSandbox({ sandboxId: row.id, memory });
    } catch (error) {
      await this.#store.compareAndSetState(row.id, ['pausing'], 'running');
      throw fromNode(error);
    }
    await this.#store.compareAndSetState(row.id, ['pausing'], 'paused', { endAt: Date.now() });
    this.#log.info('sandbox paused', { sandbox: row.id, memory });
  }

  async #resume(row: SandboxRow, options: ResumeOptions): Promise<SandboxRow> {
    if (!(await this.#store.compareAndSetState(row.id, ['paused'], 'resuming'))) throw missing(row.id);
    try {
      const build = await this.#parts.templates.getBuild(row.buildId);
      const { memory, detail } = await this.#node.resumeSandbox({
        sandboxId: row.id,
        memory: options.memory,
        guest: guestConfig(row, build),
      });
      this.#log.info('sandbox resumed', { sandbox: row.id, memory, detail });
    } catch (error) {
      await this.#store.compareAndSetState(row.id, ['resuming'], 'paused');
      throw fromNode(error);
    }
    const startedAt = Date.now();
    const endAt = startedAt + options.timeoutSeconds * 1000;
    await this.#store.compareAndSetState(row.id, ['resuming'], 'running', { startedAt, endAt });
    this.#deadlines.note(endAt);
    return { ...row, state: 'running', startedAt, endAt };
  }

  /** Something that stops a running sandbox for a moment, in its turn and with the row saying so. */
  #snapshotting<T>(row: SandboxRow, work: () => Promise<T>): Promise<T> {
    return this.#queue.run(row.id, async () => {
      if (!(await this.#store.compareAndSetState(row.id, ['running'], 'snapshotting')))
        throw new SandbarError('conflict', `Sandbox '${row.id}' cannot be snapshotted while in '${row.state}' state`);
      try {
        return await work();
      } catch (error) {
        throw fromNode(error);
      } finally {
        await this.#store.compareAndSetState(row.id, ['snapshotting'], 'running');
      }
    });
  }

  async #bringUpForks(
    row: SandboxRow,
    snapshotId: string,
    { timeoutSeconds, count }: { timeoutSeconds: number; count: number },
  ): Promise<ForkResult[]> {
    const results: ForkResult[] = [];
    const next = async (index: number): Promise<void> => {
      if (index >= count) return;
      try {
        const forked = await this.#insertAndBoot(forkedRow(newSandboxId(), row, snapshotId, timeoutSeconds));
        // The snapshot was for the boot alone and goes; the row must not point at it.
        await this.#store.update(forked.id, { snapshotId: null });
        results[index] = { row: { ...forked, snapshotId: null } };
      } catch (error) {
        results[index] = { error: toSandbarError(error) };
      }
      await next(index + FORKS_AT_ONCE);
    };
    await Promise.all(Array.from({ length: FORKS_AT_ONCE }, (_, lane) => next(lane)));
    return results;
  }

  async #running(teamId: string, sandboxId: string): Promise<SandboxRow> {
    const row = await this.get(teamId, sandboxId);
    if (row.state !== 'running' && row.state !== 'snapshotting') throw missing(sandboxId);
    return row;
  }

  #longestEnd(row: SandboxRow): number {
    return row.startedAt + this.#parts.config.maxTimeoutSeconds * 1000;
  }

  /** Moves the deadline to now + seconds where that is later; never shortens. */
  async #extend(row: SandboxRow, seconds: number): Promise<SandboxRow> {
    const endAt = Math.min(Date.now() + seconds * 1000, this.#longestEnd(row));
    return endAt > row.endAt ? this.#setDeadline(row, endAt) : row;
  }

  async #setDeadline(row: SandboxRow, endAt: number): Promise<SandboxRow> {
    if (!(await this.#store.update(row.id, { endAt }))) throw missing(row.id);
    this.#deadlines.note(endAt);
    return { ...row, endAt };
  }

  async #expire(overdue: SandboxRow): Promise<void> {
    if (!overdue.autoPause) return this.#kill(overdue.id, 'timeout');
    await this.#queue.run(overdue.id, async () => {
      const row = await this.#store.get(overdue.id);
      // Extended, paused or killed while this waited for its turn.
      if (row === undefined || row.state !== 'running' || row.endAt > Date.now()) return;
      await this.#pause(row, row.autoPauseMemory);
    });
  }

  #kill(sandboxId: string, reason: KillReason): Promise<void> {
    return this.#queue.run(sandboxId, async () => {
      const row = await this.#store.get(sandboxId);
      if (row === undefined && reason === 'user') throw missing(sandboxId);
      if (row === undefined || (reason === 'timeout' && row.endAt > Date.now())) return;
      await this.#store.compareAndSetState(sandboxId, [row.state], 'killing');
      await this.#node.destroySandbox({ sandboxId });
      await this.#store.delete(sandboxId);
      this.#log.info('sandbox killed', { sandbox: sandboxId, reason });
    });
  }

  /** Follows what happens on the machine by itself; resolves when it is being heard. */
  #watchNode(): Promise<void> {
    const { promise: ready, resolve, reject } = Promise.withResolvers<void>();
    const follow = async () => {
      for await (const message of this.#node.watch({}, { signal: this.#stop.signal })) {
        resolve();
        if (message.event.case === 'exit') await this.#ended(message.sandboxId, message.event.value);
      }
    };
    follow().catch((error) => {
      reject(error);
      if (!this.#stop.signal.aborted) this.#log.error('the node is not heard any more', { error: messageOf(error) });
    });
    return ready;
  }

  async #ended(sandboxId: string, { reason, detail }: { reason: string; detail: string }): Promise<void> {
    await this.#queue.run(sandboxId, async () => {
      this.#log.warn('sandbox ended', { sandbox: sandboxId, reason, detail });
      await this.#store.delete(sandboxId);
    });
  }
}

function missing(sandboxId: string): SandbarError {
  return new SandbarError('not_found', `Sandbox "${sandboxId}" doesn't exist or you don't have access to it`);
}
