import { statfs } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, SandbarError, toSandbarError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { guestSettings } from './guest-trust.ts';
import { Image, type ImageInfo } from './images.ts';
import type { Layout } from './layout.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import type { Machine } from './machine.ts';
import type { Records, SandboxRecord } from './record.ts';
import type { BootSource } from './runtime/contract.ts';
import type { StartCommand } from './start-command.ts';

/** Within which the agent in a healthy sandbox answers, however busy it is. */
const AGENT_TIMEOUT_MS = 10_000;
/** Within which a sandbox that was let go on must answer. */
const THAW_TIMEOUT_MS = 20_000;
/** Left free on the disk when a sandbox is written to it. */
const SPARE_BYTES = 64 * 1024 * 1024;

/**
 * Pause, resume and snapshot on one machine. A pause holds the sandbox still, writes it down, and only then may let go of it; the image in
 * the sandbox's directory is kept until the next one is whole. Not itself ordered: the node's queue is.
 */
export class Suspension {
  readonly #machine: Machine;
  readonly #records: Records;
  readonly #layout: Layout;
  /** How long a paused sandbox stays in memory beside its image, so that a resume within that time is only a thaw. */
  readonly #holdMs: number;
  readonly #log: Log;
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(machine: Machine, records: Records, layout: Layout, holdMs: number, log: Log) {
    this.#machine = machine;
    this.#holdMs = holdMs;
    this.#records = records;
    this.#layout = layout;
    this.#log = log;
  }

  stop(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }

  async requireAgent({ id, agent }: LiveSandbox): Promise<void> {
    try {
      await agent.ping(AbortSignal.timeout(AGENT_TIMEOUT_MS));
    } catch (cause) {
      throw new SandbarError('unavailable', `sandbox ${id} is not paused: the agent in it does not answer`, { cause });
    }
  }

  /** Resolves to where the sandbox is now. A failure leaves it running. */
  async pause(sandbox: LiveSandbox, { memory }: { memory: boolean }): Promise<'held' | 'on disk'> {
    const { record } = sandbox;
    const runtime = this.#machine.runtime(record.runtime);
    if (runtime.savesMemory) await this.#refuseWithoutSpace(sandbox, memory);
    record.held = true;
    await this.#records.write(record);
    sandbox.frozen = true;
    try {
      await sandbox.quiesce();
      await runtime.hold(sandbox);
      // A container's files are on its own disk already, and its memory cannot be written down.
      if (runtime.savesMemory)
        await this.#imageOf(record).write(infoOf(record, { memory, files: true }), (directory) =>
          runtime.save(sandbox, directory, { memory, files: true }),
        );
      record.state = 'paused';
      await this.#records.write(record);
    } catch (error) {
      record.state = 'running';
      await this.undoPause(sandbox).catch((undoing) =>
        this.#log.error('a sandbox that was not paused does not go on', {
          sandbox: record.id,
          error: messageOf(undoing),
        }),
      );
      const { kind } = toSandbarError(error);
      throw new SandbarError(kind, `the sandbox could not be paused and runs on: ${messageOf(error)}`, {
        cause: error,
      });
    }
    sandbox.cut('the sandbox was paused');
    if (memory) return 'held';
    await this.drop(sandbox);
    return 'on disk';
  }

  /** Lets a sandbox go on whose pause did not come to its end. */
  async undoPause(sandbox: LiveSandbox): Promise<void> {
    await this.#imageOf(sandbox.record).recover();
    await this.#machine.runtime(sandbox.record.runtime).release(sandbox);
    sandbox.frozen = false;
    sandbox.reopen();
    sandbox.record.held = false;
    await this.#records.write(sandbox.record);
  }

  /** Lets a held sandbox go on. On failure it is still paused, and its image as good as before. */
  async release(sandbox: LiveSandbox): Promise<void> {
    const { record } = sandbox;
    this.forget(sandbox.id);
    // Written first: one that is found like this is let go on, so that what it has done since is not thrown away for its image.
    record.state = 'running';
    await this.#records.write(record);
    try {
      await this.#machine.runtime(record.runtime).release(sandbox);
      sandbox.frozen = false;
      sandbox.reopen();
      await sandbox.agent.configure(guestSettings(record), AbortSignal.timeout(THAW_TIMEOUT_MS));
    } catch (error) {
      sandbox.frozen = true;
      record.state = 'paused';
      await this.#records.write(record);
      throw error;
    }
    record.held = false;
    await this.#records.write(record);
  }

  /** Brings a paused sandbox back from disk, with its memory where that is wanted and can be had. */
  async restore(
    record: SandboxRecord,
    held: LiveSandbox | undefined,
    wantMemory: boolean,
    booted: (sandbox: LiveSandbox) => Promise<void>,
  ): Promise<{ sandbox: LiveSandbox; memory: boolean; detail: string }> {
    if (held !== undefined) await this.drop(held);
    const image = this.#imageOf(record);
    const info = image.exists ? await image.info() : undefined;
    let detail = wantMemory ? 'the memory was not kept: the sandbox booted with its files' : '';
    if (wantMemory && info?.memory) {
      try {
        const from: BootSource = { kind: 'memory', imageDir: image.directory };
        return { sandbox: await this.#bringBack(record, from, info.secret, booted), memory: true, detail: '' };
      } catch (error) {
        detail = `the memory could not be restored: the sandbox booted with its files (${messageOf(error)})`;
        this.#log.error(detail, { sandbox: record.id });
      }
    }
    const from: BootSource = info === undefined ? { kind: 'disk' } : { kind: 'files', imageDir: image.directory };
    return { sandbox: await this.#bringBack(record, from, record.secret, booted), memory: false, detail };
  }

  /** Writes a running sandbox into a snapshot. Its streams go on: the agent client takes them up again after the checkpoint cut them. */
  async snapshot(
    sandbox: LiveSandbox,
    image: Image,
    { filesOnly, start }: { filesOnly: boolean; start?: StartCommand },
  ): Promise<void> {
    const { record } = sandbox;
    const runtime = this.#machine.runtime(record.runtime);
    const memory = runtime.savesMemory && !filesOnly;
    await this.#refuseWithoutSpace(sandbox, memory);
    await sandbox.quiesce();
    try {
      const info = { ...infoOf(record, { memory, files: !memory }), ...(start !== undefined && { start }) };
      await image.write(info, (directory) => runtime.save(sandbox, directory, { memory, files: !memory }));
    } finally {
      sandbox.reopen();
    }
  }

  /** Calls `drop` when a held sandbox has been in memory long enough. A container lives nowhere else, so it stays. */
  dropLater(sandbox: LiveSandbox, drop: () => Promise<void>): void {
    if (!this.#machine.runtime(sandbox.record.runtime).savesMemory) return;
    const timer = setTimeout(() => {
      this.#timers.delete(sandbox.id);
      drop().catch((error) =>
        this.#log.error('cannot let go of a paused sandbox', { sandbox: sandbox.id, error: messageOf(error) }),
      );
    }, this.#holdMs);
    timer.unref();
    this.#timers.set(sandbox.id, timer);
  }

  forget(id: string): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }

  /** Ends the processes of a paused sandbox and frees all it stood on but its image and disk. */
  async drop(sandbox: LiveSandbox): Promise<void> {
    this.forget(sandbox.id);
    sandbox.ending = true;
    sandbox.close('the sandbox is paused');
    await this.settleOnDisk(sandbox.record);
  }

  /** Takes down whatever of a paused sandbox is not its image or disk. */
  async settleOnDisk(record: SandboxRecord): Promise<void> {
    await this.#imageOf(record).recover();
    await this.#machine.takeDown(record.id, record, { keepDisk: true });
    record.slot = undefined;
    record.pid = 0;
    await this.#records.write(record);
  }

  async #bringBack(
    record: SandboxRecord,
    from: BootSource,
    agentSecret: string,
    booted: (sandbox: LiveSandbox) => Promise<void>,
  ): Promise<LiveSandbox> {
    try {
      const sandbox = await this.#machine.bringUp(record, { from, agentSecret }, booted);
      record.state = 'running';
      record.held = false;
      await this.#records.write(record);
      return sandbox;
    } catch (error) {
      await this.settleOnDisk(record);
      throw error;
    }
  }

  #imageOf(record: SandboxRecord): Image {
    return new Image(path.join(this.#layout.sandboxDir(record.id), 'image'));
  }

  /** A write that fails half way is undone, but one that cannot succeed is better not begun. */
  async #refuseWithoutSpace(sandbox: LiveSandbox, memory: boolean): Promise<void> {
    const { bavail, bsize } = await statfs(this.#layout.stateDir);
    const use = await sandbox.group.usage();
    const disk = await sandbox.agent.disk('/', AbortSignal.timeout(AGENT_TIMEOUT_MS)).catch(() => ({ usedBytes: 0 }));
    const needed = (memory ? use.memoryBytes : 0) + disk.usedBytes + SPARE_BYTES;
    if (bavail * bsize < needed)
      throw new SandbarError(
        'no_space',
        `not enough disk space to write the sandbox down: ${mb(needed)} MB needed, ${mb(bavail * bsize)} MB free`,
      );
  }
}

function infoOf(record: SandboxRecord, what: { memory: boolean; files: boolean }): ImageInfo {
  const { runtime, layers, resources, secret, agentFile } = record;
  return { runtime, ...what, layers, resources, secret, agentFile, createdAt: Date.now() };
}

function mb(bytes: number): number {
  return Math.ceil(bytes / 1024 / 1024);
}
