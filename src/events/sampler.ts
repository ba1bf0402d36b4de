import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { SandboxStore } from '../db/sandbox-store.ts';
import type { TeamSample, Timed, UsageSample } from './contract.ts';
import type { Metrics } from './metrics.ts';

/** What a machine counts of a sandbox. */
export interface RawUsage {
  /** CPU time since boot. */
  cpuUsec: number;
  memoryUsedBytes: number;
  memoryCacheBytes: number;
  memoryTotalBytes: number;
  diskUsedBytes: number;
  diskTotalBytes: number;
}

export interface SamplerParts {
  sandboxes: Pick<SandboxStore, 'running'>;
  usage: (sandboxId: string) => Promise<RawUsage>;
  metrics: Metrics;
  log: Log;
}

type Subject = Awaited<ReturnType<SandboxStore['running']>>[number];

const ROUND_MS = 5_000;
/** Part of a round over which the sandboxes are asked, one after the other, so that there is no burst. */
const SPREAD_MS = 4_000;
const AT_ONCE = 32;
const ROUNDS_BETWEEN_PRUNES = 120;

/** Measures every running sandbox about every five seconds. */
export class Sampler {
  readonly #parts: SamplerParts;
  readonly #stop = new AbortController();
  /** The last reading of each sandbox, to tell how much CPU it used since. */
  readonly #readings = new Map<string, { at: number; cpuUsec: number }>();
  readonly #startedByTeam = new Map<string, number>();
  /** Teams that had sandboxes in the last round: one more sample of theirs says that there are none now. */
  #teams = new Set<string>();
  #loop: Promise<void> | undefined;

  constructor(parts: SamplerParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  /** Counts a sandbox that was started, for its team's rate. */
  started(teamId: string): void {
    this.#startedByTeam.set(teamId, (this.#startedByTeam.get(teamId) ?? 0) + 1);
  }

  /** What a sandbox uses now. */
  async measure(subject: Pick<Subject, 'id' | 'cpuCount' | 'startedAt'>): Promise<Timed<UsageSample>> {
    const raw = await this.#parts.usage(subject.id);
    return { at: Date.now(), sample: this.#sampleOf(subject, raw, Date.now()) };
  }

  async #run(): Promise<void> {
    for (let round = 0; !this.#stop.signal.aborted; round++) {
      const beganAt = Date.now();
      try {
        await this.#round(round);
      } catch (error) {
        this.#parts.log.error('metrics cannot be kept', { error: messageOf(error) });
      }
      await this.#sleep(beganAt + ROUND_MS - Date.now());
    }
  }

  async #round(round: number): Promise<void> {
    const subjects = await this.#parts.sandboxes.running();
    const alive = new Set(subjects.flatMap(({ id, teamId }) => [id, teamId]));
    for (const id of this.#readings.keys()) if (!alive.has(id)) this.#readings.delete(id);
    await this.#parts.metrics.record(this.#teamSamples(subjects));
    await this.#measureAll(subjects);
    if (round % ROUNDS_BETWEEN_PRUNES === 0) await this.#parts.metrics.prune(alive);
  }

  async #measureAll(subjects: readonly Subject[]): Promise<void> {
    const chunks = Math.ceil(subjects.length / AT_ONCE);
    const pauseMs = chunks > 1 ? SPREAD_MS / chunks : 0;
    for (let start = 0; start < subjects.length && !this.#stop.signal.aborted; start += AT_ONCE) {
      const samples = await Promise.all(
        subjects.slice(start, start + AT_ONCE).map(async (subject) => {
          try {
            const raw = await this.#parts.usage(subject.id);
            const at = Date.now();
            const sample = this.#sampleOf(subject, raw, at);
            this.#readings.set(subject.id, { at, cpuUsec: raw.cpuUsec });
            return [{ subject: subject.id, at, sample }];
          } catch {
            // Paused or gone since it was listed.
            return [];
          }
        }),
      );
      await this.#parts.metrics.record(samples.flat());
      if (start + AT_ONCE < subjects.length) await this.#sleep(pauseMs);
    }
  }

  #teamSamples(subjects: readonly Subject[]): ({ subject: string } & Timed<TeamSample>)[] {
    const running = new Map<string, number>();
    for (const { teamId } of subjects) running.set(teamId, (running.get(teamId) ?? 0) + 1);
    const teams = new Set([...running.keys(), ...this.#startedByTeam.keys(), ...this.#teams]);
    const samples = [...teams].map((teamId) => ({
      subject: teamId,
      at: Date.now(),
      sample: {
        concurrentSandboxes: running.get(teamId) ?? 0,
        sandboxStartRate: (this.#startedByTeam.get(teamId) ?? 0) / (ROUND_MS / 1000),
      },
    }));
    this.#startedByTeam.clear();
    this.#teams = new Set(running.keys());
    return samples;
  }

  #sampleOf(subject: Pick<Subject, 'id' | 'cpuCount' | 'startedAt'>, raw: RawUsage, now: number): UsageSample {
    const last = this.#readings.get(subject.id);
    // A sandbox that was restored since then counts from zero again.
    const since = last !== undefined && last.cpuUsec <= raw.cpuUsec ? last : { at: subject.startedAt, cpuUsec: 0 };
    const share = (raw.cpuUsec - since.cpuUsec) / (Math.max(1, now - since.at) * 1000 * subject.cpuCount);
    return {
      cpuCount: subject.cpuCount,
      cpuUsedPct: Math.round(Math.min(1, Math.max(0, share)) * 10_000) / 100,
      memUsed: raw.memoryUsedBytes,
      memTotal: raw.memoryTotalBytes,
      memCache: raw.memoryCacheBytes,
      diskUsed: raw.diskUsedBytes,
      diskTotal: raw.diskTotalBytes,
    };
  }

  async #sleep(ms: number): Promise<void> {
    if (ms > 0) await delay(ms, undefined, { signal: this.#stop.signal, ref: false }).catch(() => undefined);
  }
}
