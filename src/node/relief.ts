import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { LiveSandbox } from './live-sandbox.ts';

/** What the service did for a sandbox at its limit. */
export interface ReliefEvent {
  sandboxId: string;
  kind: 'memory' | 'processes';
  message: string;
}

const ROUND_MS = 500;
const MIB = 1024 * 1024;
/** Lent to a sandbox that stands still for want of memory, so that its agent can act; twice as much each time that was not enough. */
const LOAN_BYTES = 64 * MIB;
const MOST_DOUBLINGS = 3;
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
 * kernel. The group waits at its limit (see ControlGroup.setMemory), so a slow round costs the sandbox time and nothing else.
 */
export class Relief {
  readonly #sandboxes: () => Iterable<LiveSandbox>;
  readonly #onEvent: (event: ReliefEvent) => void;
  readonly #log: Log;
  readonly #stop = new AbortController();
  readonly #busy = new Set<string>();
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

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const present = new Set<string>();
      for (const sandbox of this.#sandboxes()) {
        present.add(sandbox.id);
        if (sandbox.frozen || sandbox.ending || this.#busy.has(sandbox.id)) continue;
        this.#busy.add(sandbox.id);
        // Not awaited: one sandbox that is slow to help must not keep the others waiting.
        void this.#check(sandbox)
          .then(
            () => this.#failing.delete(sandbox.id),
            (error) => this.#failed(sandbox, error),
          )
          .finally(() => this.#busy.delete(sandbox.id));
      }
      for (const known of [this.#crowded, this.#calmUntil, this.#failing])
        for (const id of known.keys()) if (!present.has(id)) known.delete(id);
      await delay(ROUND_MS, undefined, { signal: this.#stop.signal }).catch(() => undefined);
    }
  }

  async #check(sandbox: LiveSandbox): Promise<void> {
    // In a container the kernel's own choice is right: it takes the biggest process, and never the agent.
    if (sandbox.record.runtime === 'gvisor' && (await sandbox.group.stalled(memoryLimit(sandbox))))
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
    // Who stands still for want of memory takes the loan too when it comes.
    const loan = LOAN_BYTES * 2 ** Math.min(this.#failing.get(sandbox.id)?.times ?? 0, MOST_DOUBLINGS);
    sandbox.group.setMemory(limit + loan, LOAN_BYTES);
    try {
      const killed = await sandbox.agent.relieve('memory', AbortSignal.timeout(MEMORY_TIMEOUT_MS));
      if (killed.pid !== 0)
        this.#tell(
          sandbox,
          'memory',
          `out of memory (${memoryMb} MB): killed process ${killed.pid} (${killed.name}), ${Math.round(killed.used / MIB)} MB`,
        );
      await delay(100);
    } finally {
      this.#takeBack(sandbox, limit);
    }
  }

  #takeBack(sandbox: LiveSandbox, limit: number): void {
    try {
      sandbox.group.setMemory(limit, LOAN_BYTES);
    } catch (error) {
      // Refused while more is in use; the next round tries again.
      this.#log.debug('a memory loan is not paid back yet', { sandbox: sandbox.id, error: messageOf(error) });
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
