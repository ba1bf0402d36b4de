import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { HostHelper } from './host-helper.ts';
import type { LiveSandbox } from './live-sandbox.ts';

/** What the service did for a sandbox at its limit. */
export interface ReliefEvent {
  sandboxId: string;
  kind: 'memory' | 'processes';
  message: string;
}

const ROUND_MS = 500;
/** Between looks at a sandbox that has just come to its memory limit, for the length of a round. */
const CLOSE_LOOK_MS = 20;
/** What a killed process held is free after about 30 ms, on a busy machine later; nobody else is killed before. */
const SETTLE_MS = 500;
const MIB = 1024 * 1024;
/** Lent to a sandbox that stands still for want of memory, so that its agent can act; twice as much each time that was not enough. */
const LOAN_BYTES = 64 * MIB;
const MOST_DOUBLINGS = 3;
const LEND_AGAIN_MS = 20;
const MEMORY_TIMEOUT_MS = 6_000;
const PROCESSES_TIMEOUT_MS = 20_000;
/** A sandbox that stands at a limit and whose agent has not answered for so long is past help. */
const HOPELESS_MS = 40_000;
/** Host threads of one guest process in gVisor; measured 2 to 3. They stay when the process is gone. */
const STUBS_PER_PROCESS = 3;
const MANY_STUBS_PER_PROCESS = 2.5;
/** Host threads of a gVisor sandbox without any processes, and some; measured 28. */
const IDLE_THREADS = 128;
const ROUNDS_AT_PIDS_LIMIT = 4;
/** After a look that found no crowd inside: what is counted out here may be what is left of one. */
const LOOK_AGAIN_MS = 3_000;

/**
 * Helps sandboxes that stand at a limit before the kernel would end them whole: on gVisor the kernel's choice would be the sandbox's own
 * kernel. A group that comes to the end of its memory waits there (see ControlGroup.setMemory), but gVisor does not survive that for certain: so
 * the kernel tells when it is at its limit, and the headroom above is for the time that help takes.
 */
export class Relief {
  readonly #sandboxes: () => Iterable<LiveSandbox>;
  readonly #onEvent: (event: ReliefEvent) => void;
  readonly #log: Log;
  readonly #stop = new AbortController();
  readonly #busy = new Set<string>();
  /** Until when a sandbox is looked at closely. */
  readonly #alarmed = new Map<string, number>();
  /** Rounds that a sandbox has been seen at its limit of processes without a break. */
  readonly #crowded = new Map<string, number>();
  /** Until when a count at the limit is taken for what is left of a storm. */
  readonly #calmUntil = new Map<string, number>();
  /** Since when help has failed, and how often. */
  readonly #failing = new Map<string, { since: number; times: number }>();
  readonly #giveUp: (sandbox: LiveSandbox, why: string) => void;
  #loop: Promise<void> | undefined;

  constructor(
    sandboxes: () => Iterable<LiveSandbox>,
    onEvent: (event: ReliefEvent) => void,
    giveUp: (sandbox: LiveSandbox, why: string) => void,
    log: Log,
  ) {
    this.#sandboxes = sandboxes;
    this.#onEvent = onEvent;
    this.#giveUp = giveUp;
    this.#log = log;
  }

  start(): void {
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  /** Where the kernel can tell that a sandbox comes to its memory limit, has it do so: a round may be too late. */
  watch(sandbox: LiveSandbox, helper: HostHelper): void {
    const group = sandbox.group.memoryEvents;
    if (sandbox.record.runtime !== 'gvisor' || group === undefined) return;
    helper
      .watchMemory(sandbox.id, group, memoryLimit(sandbox), () => this.#alarm(sandbox))
      .catch((error) =>
        this.#log.debug('cannot watch the memory of a sandbox', { sandbox: sandbox.id, error: messageOf(error) }),
      );
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const present = new Set<string>();
      for (const sandbox of this.#sandboxes()) {
        present.add(sandbox.id);
        // Not awaited: one sandbox that is slow to help must not keep the others waiting.
        void this.#look(sandbox);
      }
      for (const known of [this.#crowded, this.#calmUntil, this.#failing])
        for (const id of known.keys()) if (!present.has(id)) known.delete(id);
      await delay(ROUND_MS, undefined, { signal: this.#stop.signal }).catch(() => undefined);
    }
  }

  #alarm(sandbox: LiveSandbox): void {
    const isAlarmed = this.#alarmed.has(sandbox.id);
    this.#alarmed.set(sandbox.id, Date.now() + ROUND_MS);
    if (!isAlarmed) void this.#lookClosely(sandbox);
  }

  /** More than once: what brings a group to its limit may be cache at first, and another process may take what one has left. */
  async #lookClosely(sandbox: LiveSandbox): Promise<void> {
    while (!this.#stop.signal.aborted && Date.now() < (this.#alarmed.get(sandbox.id) ?? 0)) {
      await this.#look(sandbox);
      await delay(CLOSE_LOOK_MS);
    }
    this.#alarmed.delete(sandbox.id);
  }

  async #look(sandbox: LiveSandbox): Promise<void> {
    if (sandbox.frozen || sandbox.ending || this.#busy.has(sandbox.id)) return;
    this.#busy.add(sandbox.id);
    try {
      await this.#check(sandbox);
      this.#failing.delete(sandbox.id);
    } catch (error) {
      this.#failed(sandbox, error);
    } finally {
      this.#busy.delete(sandbox.id);
    }
  }

  async #check(sandbox: LiveSandbox): Promise<void> {
    // In a container the kernel's own choice is right: it takes the biggest process, and never the agent.
    if (sandbox.record.runtime === 'gvisor' && sandbox.group.stalled(memoryLimit(sandbox)))
      await this.#freeMemory(sandbox);
    const pressure = await pressureOn(sandbox);
    const rounds = pressure === 'none' ? 0 : (this.#crowded.get(sandbox.id) ?? 0) + 1;
    if (rounds === 0) this.#crowded.delete(sandbox.id);
    else this.#crowded.set(sandbox.id, rounds);
    sandbox.strain = rounds > 0 ? `process limit reached (${sandbox.record.resources.pidsMax})` : undefined;
    const calm = Date.now() < (this.#calmUntil.get(sandbox.id) ?? 0);
    // gVisor's stubs multiply while a storm goes on, so there is no time to see whether it passes.
    if (!calm && (pressure === 'storm' || rounds >= ROUNDS_AT_PIDS_LIMIT)) await this.#freeProcesses(sandbox);
  }

  /** Better ended, with the reason on record, than running in name only. */
  #failed(sandbox: LiveSandbox, error: unknown): void {
    if (sandbox.ending) return;
    this.#log.debug('relief', { sandbox: sandbox.id, error: messageOf(error) });
    const { since, times } = this.#failing.get(sandbox.id) ?? { since: Date.now(), times: 0 };
    this.#failing.set(sandbox.id, { since, times: times + 1 });
    if (Date.now() - since < HOPELESS_MS) return;
    this.#failing.delete(sandbox.id);
    const limit = sandbox.strain ?? `out of memory (${sandbox.record.resources.memoryMb} MB)`;
    this.#giveUp(sandbox, `${limit}: the sandbox did not answer any more`);
  }

  async #freeMemory(sandbox: LiveSandbox): Promise<void> {
    const limit = memoryLimit(sandbox);
    const { memoryMb } = sandbox.record.resources;
    const answered = new AbortController();
    const lending = this.#lend(sandbox, limit, answered.signal);
    try {
      const killed = await sandbox.agent.relieve('memory', AbortSignal.timeout(MEMORY_TIMEOUT_MS));
      if (killed.pid !== 0)
        this.#tell(
          sandbox,
          'memory',
          `out of memory (${memoryMb} MB): killed process ${killed.pid} (${killed.name}), ${Math.round(killed.used / MIB)} MB`,
        );
      const settledAt = Date.now() + SETTLE_MS;
      while (sandbox.group.stalled(limit) && Date.now() < settledAt) await delay(CLOSE_LOOK_MS);
    } finally {
      answered.abort();
      await lending;
      // Where that is refused yet, the next round tries again.
      this.#setLimit(sandbox, limit);
    }
  }

  /** Lends until it is `over`; never fails. Who wants memory takes the loan too: then there is more, before the headroom is gone as well. */
  async #lend(sandbox: LiveSandbox, limit: number, over: AbortSignal): Promise<void> {
    for (let doublings = this.#failing.get(sandbox.id)?.times ?? 0; !over.aborted; doublings++) {
      const lent = limit + LOAN_BYTES * 2 ** Math.min(doublings, MOST_DOUBLINGS);
      if (!this.#setLimit(sandbox, lent) && doublings < MOST_DOUBLINGS) continue;
      do await delay(LEND_AGAIN_MS, undefined, { signal: over }).catch(() => undefined);
      while (!over.aborted && !sandbox.group.outgrows(lent));
    }
  }

  /** Answers false where it is refused: more than that is in use. */
  #setLimit(sandbox: LiveSandbox, limit: number): boolean {
    try {
      sandbox.group.setMemory(limit, STALL_HEADROOM_BYTES);
      return true;
    } catch (error) {
      this.#log.debug('a memory limit is refused', { sandbox: sandbox.id, error: messageOf(error) });
      return false;
    }
  }

  async #freeProcesses(sandbox: LiveSandbox): Promise<void> {
    const killed = await sandbox.agent.relieve('processes', AbortSignal.timeout(PROCESSES_TIMEOUT_MS));
    this.#crowded.delete(sandbox.id);
    if (killed.pid === 0) {
      this.#calmUntil.set(sandbox.id, Date.now() + LOOK_AGAIN_MS);
      return;
    }
    this.#tell(
      sandbox,
      'processes',
      `process limit reached (${sandbox.record.resources.pidsMax}): killed session ${killed.pid} (${killed.name}), ${killed.used} processes`,
    );
  }

  #tell(sandbox: LiveSandbox, kind: ReliefEvent['kind'], message: string): void {
    this.#log.warn(message, { sandbox: sandbox.id });
    this.#onEvent({ sandboxId: sandbox.id, kind, message });
  }
}

/**
 * Whether a sandbox is at its limit of processes. A container by the kernel's count. gVisor by the stubs of so many processes; and more stubs than
 * that are a storm of forks, since each that is refused leaves one.
 */
async function pressureOn({ group, record }: LiveSandbox): Promise<'none' | 'full' | 'storm'> {
  if (record.runtime !== 'gvisor') return (await group.pidsExhausted()) ? 'full' : 'none';
  const { pidsMax } = record.resources;
  const threads = await group.pids();
  if (threads > pidsMax * STUBS_PER_PROCESS + IDLE_THREADS) return 'storm';
  return threads > pidsMax * MANY_STUBS_PER_PROCESS ? 'full' : 'none';
}

function memoryLimit(sandbox: LiveSandbox): number {
  return sandbox.record.resources.memoryMb * MIB + GVISOR_OVERHEAD_BYTES;
}

/** What a gVisor sandbox may use beyond its template's memory: the kernel itself. */
export const GVISOR_OVERHEAD_BYTES = 192 * MIB;

/** How far the group of a gVisor sandbox may go over its limit before the kernel refuses it memory (v1) or ends something (v2). */
export const STALL_HEADROOM_BYTES = 256 * MIB;
