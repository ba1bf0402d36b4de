import { availableParallelism } from 'node:os';
import type { Config } from '../core/config.ts';
import { messageOf, SandbarError, toSandbarError } from '../core/errors.ts';
import { newSandboxId, newUuid } from '../core/ids.ts';
import { KeyedQueue } from '../core/keyed-queue.ts';
import type { Log } from '../core/log.ts';
import { Places } from '../core/places.ts';
import type { SandboxPatch, SandboxStore } from '../db/sandbox-store.ts';
import type { TemplateBuildRow } from '../db/schema.ts';
import type { TemplateStore } from '../db/template-store.ts';
import type { EndReason, LifecycleObserver } from '../events/contract.ts';
import { fromNode, type NodeClient } from '../node/client.ts';
import type { SecretValues } from '../secrets/contract.ts';
import type {
  CreateSandbox,
  ForkResult,
  ListPage,
  ListQuery,
  NetworkChange,
  PauseOptions,
  ResumeOptions,
  SandboxDirectory,
  Sandboxes,
  SandboxRow,
  TeamRef,
} from './contract.ts';
import { Deadlines } from './deadlines.ts';
import { bootKind, guestConfig } from './guest-config.ts';
import { networkPolicyOf, secretNamesIn, withEgress } from './network-policy.ts';
import { forkedRow, freshToken, newRow } from './new-row.ts';
import { reconcile } from './reconcile.ts';

export interface SandboxServiceParts {
  config: Pick<Config, 'runtime' | 'maxSandboxes' | 'maxTimeoutSeconds'>;
  sandboxes: SandboxStore;
  templates: TemplateStore;
  node: NodeClient;
  observer: LifecycleObserver;
  secrets: SecretValues;
  log: Log;
}

/** Copies of one sandbox that are brought up side by side. */
const FORKS_AT_ONCE = 4;
/**
 * As many creates are under way as there are processors, the others wait in the order of coming: all together would take as long, and the first would have
 * to wait for the last. Not for one that takes longer than this, though.
 */
const LONG_CREATE_MS = 1_000;
/** Shortest life that traffic gives to a sandbox it wakes. */
const WAKE_SECONDS = 300;
/** Between two attempts to clear away a sandbox that could not be. */
const KILL_RETRY_MS = 5_000;
const FILES_ALONE = 'began with the files of its snapshot alone: the container runtime cannot write memory down';

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
  readonly #creating = new Places(availableParallelism(), LONG_CREATE_MS);
  readonly #deadlines: Deadlines;
  readonly #observer: LifecycleObserver;
  readonly #stop = new AbortController();

  constructor(parts: SandboxServiceParts) {
    this.#parts = parts;
    this.#store = parts.sandboxes;
    this.#node = parts.node;
    this.#log = parts.log;
    this.#observer = parts.observer;
    this.#deadlines = new Deadlines(parts.sandboxes, (row) => this.#expire(row), parts.log);
  }

  /** Makes rows and machine agree after a restart, then keeps the deadlines. */
  async start(): Promise<void> {
    await this.#watchNode();
    await reconcile({ ...this.#parts, store: this.#store });
    await this.#giveNetworks();
    await this.#deadlines.start();
    await this.#expectBase();
  }

  async stop(): Promise<void> {
    this.#deadlines.stop();
    await this.#queue.idle();
    this.#stop.abort();
  }

  async create(team: TeamRef, spec: CreateSandbox, signal?: AbortSignal): Promise<SandboxRow> {
    const resolved = await this.#parts.templates.resolve(spec.templateRef, team);
    const draft = newRow(newSandboxId(), team.id, spec, resolved, this.#parts.config.runtime);
    const running = await this.#creating.run(async () => {
      signal?.throwIfAborted();
      return this.#claimOrBoot(draft, resolved.build, signal);
    });
    // The answer goes out first.
    setImmediate(() => this.#countSpawn(running));
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
    // What ends has time: it does not take the processors from many that begin.
    await this.#creating.letOthersIn(LONG_CREATE_MS);
    await this.#queue.run(sandboxId, async () => {
      const row = await this.get(teamId, sandboxId);
      const killing = { endReason: 'user' } as const;
      if (!(await this.#store.compareAndSetState(sandboxId, [row.state], 'killing', killing))) throw missing(sandboxId);
      await this.#finishKill(row, 'user');
    });
  }

  async setTimeout(teamId: string, sandboxId: string, seconds: number): Promise<void> {
    const row = await this.#running(teamId, sandboxId);
    const longest = this.#longestEnd(row);
    if (Date.now() > longest) throw new SandbarError('invalid', 'Max instance length exceeded');
    const endAt = Math.min(Date.now() + seconds * 1000, longest);
    if (!(await this.#store.setDeadline(sandboxId, endAt))) throw missing(sandboxId);
    this.#deadlines.note(endAt);
    this.#observer.updated(row, { set_timeout: new Date(endAt).toISOString() });
  }

  async refresh(teamId: string, sandboxId: string, seconds: number): Promise<void> {
    await this.#extend(await this.#running(teamId, sandboxId), seconds);
  }

  async connect(
    teamId: string,
    sandboxId: string,
    options: ResumeOptions,
  ): Promise<{ row: SandboxRow; resumed: boolean }> {
    const known = await this.#store.get(sandboxId);
    if (known?.teamId === teamId && known.state === 'killing')
      throw new SandbarError('conflict', `Sandbox ${sandboxId} is being killed`);
    await this.get(teamId, sandboxId);
    return this.#queue.run(sandboxId, async () => {
      const row = await this.get(teamId, sandboxId);
      if (row.state !== 'paused') return { row: await this.#extend(row, options.timeoutSeconds), resumed: false };
      return { row: await this.#resume(row, options, 'user'), resumed: true };
    });
  }

  async pause(teamId: string, sandboxId: string, options: PauseOptions): Promise<void> {
    const row = await this.get(teamId, sandboxId);
    if (row.state === 'paused')
      throw new SandbarError('conflict', `Error pausing sandbox - sandbox '${sandboxId}' is already paused`);
    await this.#queue.run(sandboxId, async () => {
      const now = await this.get(teamId, sandboxId);
      // Asked for twice at the same time: the other one did it.
      if (now.state === 'paused') return;
      if (!(await this.#store.compareAndSetState(sandboxId, ['running'], 'pausing'))) throw missing(sandboxId);
      await this.#pause(now, options, 'user');
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
      const { autoPause = row.autoPause } = options;
      return this.#resume(row, options, 'user', { ...freshToken(row), autoPause });
    });
  }

  async setNetwork(teamId: string, sandboxId: string, change: NetworkChange): Promise<void> {
    await this.get(teamId, sandboxId);
    await this.#queue.run(sandboxId, async () => {
      const row = await this.get(teamId, sandboxId);
      if (row.state !== 'running') throw missing(sandboxId);
      const changed = {
        network: withEgress(row.network, change.egress),
        allowInternetAccess: change.allowInternetAccess,
      };
      const network = await this.#networkOf({ ...row, ...changed });
      await this.#store.update(sandboxId, changed);
      try {
        await this.#node.setNetwork({ sandboxId, network });
      } catch (error) {
        await this.#store.update(sandboxId, { network: row.network, allowInternetAccess: row.allowInternetAccess });
        throw fromNode(error);
      }
      this.#observer.note(sandboxId, 'info', 'network changed');
    });
  }

  async writeSnapshot(
    teamId: string,
    sandboxId: string,
    snapshotId: string,
    options: { filesOnly: boolean },
  ): Promise<SandboxRow> {
    const row = await this.get(teamId, sandboxId);
    if (row.state === 'paused') throw missing(sandboxId);
    await this.#snapshotting(row, () => this.#node.snapshotSandbox({ sandboxId, snapshotId, ...options }));
    return row;
  }

  async fork(
    teamId: string,
    sandboxId: string,
    options: { timeoutSeconds: number; count: number },
  ): Promise<ForkResult[]> {
    const limit = this.#parts.config.maxSandboxes;
    if (options.count >= limit)
      throw new SandbarError('invalid', `count must be below the number of sandboxes you may run at once (${limit})`);
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

  /** Gives the running sandboxes whose rules name a secret the value that it has now. */
  secretChanged(teamId: string, name: string): void {
    const give = async () => {
      const rows = await this.#store.allInStates(['running', 'snapshotting']);
      for (const row of rows.filter((each) => each.teamId === teamId && secretNamesIn(each.network).includes(name)))
        await this.#queue.run(row.id, () => this.#giveNetwork(row.id));
    };
    give().catch((error) => this.#log.error('a changed secret cannot be passed on', { error: messageOf(error) }));
  }

  async lookup(sandboxId: string): Promise<SandboxRow | undefined> {
    const row = await this.#store.get(sandboxId);
    if (row === undefined || row.state === 'starting' || row.state === 'killing') return undefined;
    // One that is being resumed is waited for, whoever asked for it.
    if (row.state === 'running' || row.state === 'snapshotting' || row.state === 'resuming') return row;
    return mayWake(row) ? row : undefined;
  }

  wake(sandboxId: string): Promise<SandboxRow> {
    return this.#queue.run(sandboxId, async () => {
      const row = await this.#store.get(sandboxId);
      if (row?.state === 'running') return row;
      if (row?.state !== 'paused' || !mayWake(row)) throw missing(sandboxId);
      const longest = this.#parts.config.maxTimeoutSeconds;
      const timeoutSeconds = Math.min(Math.max(WAKE_SECONDS, row.timeoutSeconds), longest);
      return this.#resume(row, { timeoutSeconds, memory: true }, 'traffic');
    });
  }

  /**
   * Tells the machine what every sandbox may reach, after a restart: the values of secrets, which it keeps in memory alone, and a change that
   * was written down and not carried out.
   */
  async #giveNetworks(): Promise<void> {
    for (const { id } of await this.#store.allInStates(['running'])) {
      await this.#giveNetwork(id).catch((error) =>
        this.#log.error('the network of a sandbox cannot be set', { sandbox: id, error: messageOf(error) }),
      );
    }
  }

  async #giveNetwork(sandboxId: string): Promise<void> {
    const row = await this.#store.get(sandboxId);
    if (row?.state === 'running') await this.#node.setNetwork({ sandboxId, network: await this.#networkOf(row) });
  }

  /** The first create after a start is mostly of `base`: it finds one booted. */
  async #expectBase(): Promise<void> {
    const base = await this.#parts.templates.findBuiltin('base');
    if (base !== undefined)
      await this.#node.expectSandbox(bootKind({ ...base, runtime: this.#parts.config.runtime }, base));
  }

  /**
   * The id of a sandbox that is booted already, or empty. None is booted ahead from a snapshot that a user took: its processes would have
   * run on before anybody asked for them to.
   */
  async #reserve(draft: SandboxRow, build: TemplateBuildRow): Promise<string> {
    if (build.sourceSandboxId !== null) return '';
    return (await this.#node.reserveSandbox(bootKind(draft, build))).sandboxId;
  }

  async #claimOrBoot(draft: SandboxRow, build: TemplateBuildRow, signal?: AbortSignal): Promise<SandboxRow> {
    const reserved = await this.#reserve(draft, build);
    if (reserved === '') return this.#insertAndBoot(draft, () => this.#boot(draft, build, signal));
    const row = { ...draft, id: reserved };
    // What is up already is made this row's while the row is written: after a crash in between it is one without a row, and is removed.
    const claimed = this.#boot(row, build, signal);
    claimed.catch(() => undefined);
    try {
      return await this.#insertAndBoot(row, () => claimed);
    } catch (error) {
      await this.#node.destroySandbox({ sandboxId: reserved });
      throw error;
    }
  }

  /** Takes a place of the team, boots, and makes the row running. A failure leaves nothing. */
  async #insertAndBoot(row: SandboxRow, boot: () => Promise<void>): Promise<SandboxRow> {
    const limit = this.#parts.config.maxSandboxes;
    if (!(await this.#store.insertWithin(row, limit))) throw limitReached(limit);
    return this.#queue.run(row.id, async () => {
      try {
        await boot();
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
      const up: SandboxRow = { ...row, state: 'running', startedAt, endAt };
      this.#observer.created(up);
      if (row.snapshotId !== null && row.runtime === 'container') this.#observer.note(row.id, 'info', FILES_ALONE);
      return up;
    });
  }

  async #boot(row: SandboxRow, build: TemplateBuildRow, signal?: AbortSignal): Promise<void> {
    const network = await this.#networkOf(row);
    await this.#node.createSandbox(
      { ...bootKind(row, build), sandboxId: row.id, guest: guestConfig(row, build), network },
      { ...(signal !== undefined && { signal }) },
    );
  }

  #countSpawn({ templateId, startedAt }: SandboxRow): void {
    this.#parts.templates
      .bumpSpawnCount(templateId, startedAt)
      .catch((error) =>
        this.#log.warn('a create cannot be counted', { template: templateId, error: messageOf(error) }),
      );
  }

  /** Writes down a sandbox whose row says `pausing` already. A failure leaves it running, and says why in its log. */
  async #pause(row: SandboxRow, options: PauseOptions, by: 'user' | 'timeout'): Promise<void> {
    const { memory } = options;
    try {
      await this.#node.pauseSandbox({ sandboxId: row.id, ...options });
    } catch (thrown) {
      const error = fromNode(thrown);
      this.#observer.note(row.id, 'error', `pause failed: ${error.message}`);
      await this.#store.compareAndSetState(row.id, ['pausing'], 'running');
      this.#deadlines.note(row.endAt);
      throw error;
    }
    const paused = { endAt: Date.now(), memoryKept: memory };
    await this.#store.compareAndSetState(row.id, ['pausing'], 'paused', paused);
    this.#observer.paused({ ...row, ...paused, state: 'paused' }, { memory, by });
    this.#log.info('sandbox paused', { sandbox: row.id, memory, by });
  }

  /**
   * Brings a paused sandbox back. The row has its new deadline before the machine is asked, so that after a crash in between it is
   * either paused still or running with the life it was given.
   */
  async #resume(
    row: SandboxRow,
    options: ResumeOptions,
    by: 'user' | 'traffic',
    change: SandboxPatch = {},
  ): Promise<SandboxRow> {
    const lifeMs = options.timeoutSeconds * 1000;
    const begun = await this.#store.resumeWithin(row, this.#parts.config.maxSandboxes, {
      ...change,
      startedAt: Date.now(),
      endAt: Date.now() + lifeMs,
    });
    if (begun === 'full') throw limitReached(this.#parts.config.maxSandboxes);
    if (begun === 'not paused') throw missing(row.id);
    let how: { memory: boolean; detail: string };
    try {
      const build = await this.#parts.templates.getBuild(row.buildId);
      how = await this.#node.resumeSandbox({
        sandboxId: row.id,
        memory: options.memory,
        guest: guestConfig(row, build),
        network: await this.#networkOf(row),
      });
    } catch (thrown) {
      const error = fromNode(thrown);
      this.#observer.note(row.id, 'error', `resume failed: ${error.message}`);
      const { startedAt, endAt } = row;
      await this.#store.compareAndSetState(row.id, ['resuming'], 'paused', { startedAt, endAt });
      throw error;
    }
    const startedAt = Date.now();
    const endAt = startedAt + lifeMs;
    await this.#store.compareAndSetState(row.id, ['resuming'], 'running', { startedAt, endAt });
    this.#deadlines.note(endAt);
    const running: SandboxRow = { ...row, ...change, state: 'running', startedAt, endAt };
    // Without memory since none was kept: that was asked for when it was paused.
    const detail = row.memoryKept ? how.detail : '';
    this.#observer.resumed(running, { memory: how.memory, detail, by });
    this.#log.info('sandbox resumed', { sandbox: row.id, memory: how.memory, detail, by });
    return running;
  }

  /** What a sandbox may reach, with the values of the secrets that its rules name. */
  async #networkOf(row: SandboxRow) {
    const names = secretNamesIn(row.network);
    return networkPolicyOf(row, names.length === 0 ? {} : await this.#parts.secrets.values(row.teamId, names));
  }

  /** Something that stops a running sandbox for a moment, in its turn and with the row saying so. */
  #snapshotting<T>(row: SandboxRow, work: () => Promise<T>): Promise<T> {
    return this.#queue.run(row.id, async () => {
      if (!(await this.#store.compareAndSetState(row.id, ['running'], 'snapshotting'))) {
        const { state } = await this.get(row.teamId, row.id);
        throw new SandbarError('conflict', `Sandbox '${row.id}' cannot be snapshotted while in '${state}' state`);
      }
      try {
        return await work();
      } catch (error) {
        throw fromNode(error);
      } finally {
        await this.#store.compareAndSetState(row.id, ['snapshotting'], 'running');
        // Its deadline may have passed meanwhile, and nobody looks at one that is not running.
        this.#deadlines.note(row.endAt);
      }
    });
  }

  async #bringUpForks(
    row: SandboxRow,
    snapshotId: string,
    { timeoutSeconds, count }: { timeoutSeconds: number; count: number },
  ): Promise<ForkResult[]> {
    const build = await this.#parts.templates.getBuild(row.buildId);
    if (build === undefined) throw new SandbarError('not_found', `build ${row.buildId} is gone`);
    const results: ForkResult[] = [];
    const next = async (index: number): Promise<void> => {
      if (index >= count) return;
      try {
        const copy = forkedRow(newSandboxId(), row, snapshotId, timeoutSeconds);
        const forked = await this.#insertAndBoot(copy, () => this.#boot(copy, build));
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
    if (!(await this.#store.extendDeadline(row.id, endAt))) throw missing(row.id);
    this.#deadlines.note(endAt);
    return { ...row, endAt: Math.max(row.endAt, endAt) };
  }

  /** The deadline of a sandbox came. Does nothing if it was extended, paused or killed before this had its turn. */
  #expire(overdue: SandboxRow): Promise<void> {
    const next = overdue.autoPause ? 'pausing' : 'killing';
    return this.#queue.run(overdue.id, async () => {
      const row = await this.#store.get(overdue.id);
      const patch = next === 'killing' ? ({ endReason: 'timeout' } as const) : {};
      if (row === undefined || !(await this.#store.compareAndSetExpired(row.id, Date.now(), next, patch))) return;
      if (next === 'pausing') await this.#pause(row, { memory: row.autoPauseMemory }, 'timeout');
      else await this.#finishKill(row, 'timeout');
    });
  }

  /** Clears away a sandbox whose row says `killing` already: for the outside it is gone, and it is tried until it is. */
  async #finishKill(row: SandboxRow, reason: EndReason): Promise<void> {
    await this.#observer.killed(row, reason, '');
    this.#log.info('sandbox killed', { sandbox: row.id, reason });
    await this.#clearAway(row.id);
  }

  async #clearAway(sandboxId: string): Promise<void> {
    try {
      await this.#node.destroySandbox({ sandboxId });
      await this.#store.delete(sandboxId);
    } catch (error) {
      this.#log.error('a killed sandbox cannot be cleared away yet', { sandbox: sandboxId, error: messageOf(error) });
      const retry = () => void this.#queue.run(sandboxId, () => this.#clearAway(sandboxId));
      const timer = setTimeout(retry, KILL_RETRY_MS);
      timer.unref();
      this.#stop.signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    }
  }

  /** Follows what happens on the machine by itself; resolves when it is being heard. */
  #watchNode(): Promise<void> {
    const { promise: ready, resolve, reject } = Promise.withResolvers<void>();
    const follow = async () => {
      for await (const message of this.#node.watch({}, { signal: this.#stop.signal })) {
        resolve();
        const { sandboxId, event } = message;
        // Not waited for: what one sandbox is busy with must not hold up the news of another.
        if (event.case === 'exit')
          void this.#ended(sandboxId, event.value).catch((error) =>
            this.#log.error('an ended sandbox cannot be forgotten', { sandbox: sandboxId, error: messageOf(error) }),
          );
        if (event.case === 'relief')
          this.#observer.note(sandboxId, 'warn', event.value.message, { kind: event.value.kind });
        if (event.case === 'denied') this.#observer.note(sandboxId, 'warn', ...deniedLine(event.value));
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
      const row = await this.#store.get(sandboxId);
      if (row === undefined) return;
      await this.#observer.killed(row, reason === 'oom' ? 'oom' : 'crash', detail);
      await this.#store.delete(sandboxId);
    });
  }
}

function deniedLine({ protocol, host, port }: { protocol: string; host: string; port: number }) {
  const place = port === 0 ? host : `${host}:${port}`;
  const what = protocol === 'dns' ? `name not answered: ${host}` : `connection denied: ${protocol} ${place}`;
  return [what, { protocol, host, port: String(port) }] as const;
}

function mayWake(row: SandboxRow): boolean {
  return row.autoResume && (row.state === 'pausing' || row.memoryKept);
}

function limitReached(limit: number): SandbarError {
  return new SandbarError(
    'rate_limited',
    `you have reached the maximum number of concurrent E2B sandboxes (${limit}). Kill some of them or raise SANDBAR_MAX_SANDBOXES.`,
  );
}

function missing(sandboxId: string): SandbarError {
  return new SandbarError('not_found', `Sandbox "${sandboxId}" doesn't exist or you don't have access to it`);
}
