import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { AgentClient } from '../agent/client.ts';
import type { DiskUse } from '../agent/contract.ts';
import { GuestLink } from '../agent/link.ts';
import { SandbarError } from '../core/errors.ts';
import type { ControlGroup } from './cgroup.ts';
import type { Follower, GuestAccess } from './contract.ts';
import type { Slot } from './network/slots.ts';
import type { SandboxRecord } from './record.ts';

const AGENT_PORT = 49_981;

const AGENT_WAIT_MS = 30_000;
/** A sandbox that ran less than this has done nothing. */
const IDLE_USEC = 10_000;
const DISK_ANSWER_MS = 15_000;
const DISK_TIMEOUT_MS = 5_000;
/** A first packet that comes before the sandbox's network is up is lost, and the kernel would repeat it only after a second. */
const ATTEMPT_MS = 100;

/** A sandbox that is up on this machine. */
export class LiveSandbox {
  readonly record: SandboxRecord;
  readonly slot: Slot;
  readonly group: ControlGroup;
  /** Its files on this machine. */
  readonly directory: string;
  readonly #link: GuestLink;
  readonly #followers = new Set<Follower>();
  #disk: { use: DiskUse; at: number; cpuUsec: number } | undefined;
  /** Held still: its processes do not run. */
  frozen = false;
  /** Set once an end is on its way that was asked for, so that the end of its process is no news. */
  ending = false;
  /** The limit at which it stands, in words; it may be what ends it. */
  strain: string | undefined;
  /** Why the service itself put an end to it. */
  verdict: string | undefined;

  constructor(record: SandboxRecord, slot: Slot, group: ControlGroup, directory: string) {
    this.record = record;
    this.directory = directory;
    this.slot = slot;
    this.group = group;
    this.#link = new GuestLink({ host: slot.guest, port: AGENT_PORT, secret: Buffer.from(record.secret, 'hex') });
  }

  get id(): string {
    return this.record.id;
  }

  get sandboxId(): string {
    return this.record.id;
  }

  get agent(): AgentClient {
    return this.#link.agent;
  }

  /** Aborts when the sandbox ends or is paused. */
  get lifetime(): AbortSignal {
    return this.#link.lifetime;
  }

  /** A connection to a port inside; refused as bad_gateway. */
  dial(port: number, signal?: AbortSignal): Promise<Duplex> {
    return this.#link.dial(port, signal);
  }

  /** The same way in for another process, which is told from now on when it must let go of it. */
  follow(follower: Follower): GuestAccess {
    this.#followers.add(follower);
    const { slot, record, agent } = this;
    return { host: slot.guest, agentPort: AGENT_PORT, secret: record.secret, held: agent.held };
  }

  unfollow(follower: Follower): void {
    this.#followers.delete(follower);
  }

  /** Resolves when the agent listens; fails when the sandbox ends before, or after 30 s. */
  async awaitAgent(signal?: AbortSignal): Promise<void> {
    const giveUpAt = Date.now() + AGENT_WAIT_MS;
    for (let waitMs = 1; ; waitMs = Math.min(waitMs * 2, 20)) {
      signal?.throwIfAborted();
      if (this.lifetime.aborted) throw new SandbarError('internal', 'the sandbox ended while it was starting');
      try {
        // What came too early is not answered at all, and sent again only after a second: so not waited for, unless the machine is slow.
        const attempt = AbortSignal.timeout(ATTEMPT_MS * waitMs);
        return await this.agent.ping(signal === undefined ? attempt : AbortSignal.any([signal, attempt]));
      } catch (error) {
        if (Date.now() > giveUpAt)
          throw new SandbarError('internal', 'the agent in the sandbox did not answer', { cause: error });
        await delay(waitMs);
      }
    }
  }

  /**
   * What its disk holds. Asking costs the sandbox a wake-up, and one that has not run since the last answer cannot have written: then that
   * answer stands. `cpuUsec` is the time it has run so far.
   */
  async diskUse(cpuUsec: number): Promise<DiskUse> {
    const last = this.#disk;
    if (last !== undefined && cpuUsec - last.cpuUsec < IDLE_USEC && Date.now() - last.at < DISK_ANSWER_MS)
      return last.use;
    const use = await this.agent.disk('/', AbortSignal.timeout(DISK_TIMEOUT_MS));
    const after = (await this.group.usage()).cpuUsec;
    // The answer itself took some of its time; more than that, and it may have written behind the answer's back.
    this.#disk = { use, at: Date.now(), cpuUsec: after - cpuUsec < IDLE_USEC ? after : cpuUsec };
    return use;
  }

  /** Prepares for a checkpoint: no request is under way and no connection open, in this process or another, until `reopen`. */
  async quiesce(): Promise<void> {
    await Promise.all([this.agent.quiesce(), ...[...this.#followers].map((follower) => follower.hold(this.id))]);
  }

  /** Lets everything go on that was held back. */
  reopen(): void {
    this.agent.reopen();
    for (const follower of this.#followers) follower.reopen(this.id);
  }

  /** Cuts every stream that hangs on the sandbox, which itself goes on, or will. */
  cut(reason: string): void {
    this.#link.cut(reason);
    for (const follower of this.#followers) follower.cut(this.id, reason);
  }

  /** Cuts everything that hangs on the sandbox, for good. */
  close(reason: string): void {
    this.#link.close(reason);
    for (const follower of this.#followers) follower.end(this.id, reason);
    this.#followers.clear();
  }
}
