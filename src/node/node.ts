import { EventEmitter } from 'node:events';
import { chmod, mkdir, readdir } from 'node:fs/promises';
import path from 'node:path';
import type { Duplex } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import type { RuntimeName } from '../core/config.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { newSandboxId, randomHex } from '../core/ids.ts';
import { KeyedQueue } from '../core/keyed-queue.ts';
import type { Log } from '../core/log.ts';
import { Clearing } from './clearing.ts';
import type { DataPlane, FollowedSandboxes, Follower, GuestAccess } from './contract.ts';
import { layersInUse } from './disk/layer-users.ts';
import type { Layers } from './disk/layers.ts';
import type { RootEdits } from './disk/root-edits.ts';
import { runFirstProcess } from './first-process.ts';
import { guestSettings, needsTrust } from './guest-trust.ts';
import { remove } from './host-orders.ts';
import { Image } from './images.ts';
import { Layout } from './layout.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import { type BootOptions, Machine, type Programs } from './machine.ts';
import type { Denial } from './network/denials.ts';
import { type NetworkPolicy, OPEN_POLICY } from './network/policy.ts';
import { Processors } from './processors.ts';
import { type GuestConfig, Records, type Resources, type SandboxRecord } from './record.ts';
import { Relief, type ReliefEvent } from './relief.ts';
import type { BootSource } from './runtime/contract.ts';
import { runStartCommand, type StartCommand } from './start-command.ts';
import { Suspension } from './suspension.ts';
import { type BootAhead, type WarmKind, WarmPool } from './warm-pool.ts';

export interface NodeOptions {
  stateDir: string;
  networkRange: string | undefined;
  /** DNS servers that sandboxes' questions go to, `address[:port]`; none: the machine's own. */
  nameServers?: readonly string[];
  /** Connections one sandbox may have open to the outside. */
  sandboxConnections?: number;
  /** Bytes a second each way of one sandbox; undefined: no limit. */
  sandboxBytesPerSecond?: number | undefined;
  programs: Programs;
  /** Sandboxes kept ready for one template build in use, between these; most 0: none. */
  warmPool: { least: number; most: number };
  /** How long a paused sandbox stays in memory too; 15 s where nothing is said. */
  pauseHoldMs?: number;
}

export interface CreateOnNode {
  sandboxId: string;
  runtime: RuntimeName;
  templateId: string;
  buildId: string;
  layers: string[];
  resources: Resources;
  guest: GuestConfig;
  /** Snapshot that it begins from; undefined: the template alone. */
  snapshotId?: string;
  network?: NodeNetwork;
}

/** What a sandbox may reach, and the values that its header rules name, which are not kept. */
export interface NodeNetwork {
  policy: NetworkPolicy;
  secrets: Record<string, string>;
}

/** A sandbox that ended without being asked to. */
export interface NodeExit {
  sandboxId: string;
  reason: 'oom' | 'crash';
  detail: string;
  atMs: number;
}

interface NodeEvents {
  exit: [NodeExit];
  relief: [ReliefEvent];
  denied: [Denial];
}

export type NodeSandboxState = 'running' | 'paused';

const MIB = 1024 * 1024;
const HOLD_MS = 15_000;
/** So long a sandbox is booted ahead with only what others leave of the processors. */
const BACKGROUND_MS = 3_000;

/** The sandboxes of one machine: boots them, knows them, clears them away, and finds them again after a restart of the service. */
export class Node extends EventEmitter<NodeEvents> implements DataPlane, FollowedSandboxes {
  readonly #layout: Layout;
  readonly #agentFile: string;
  readonly #log: Log;
  readonly #records: Records;
  readonly #machine: Machine;
  readonly #relief: Relief;
  readonly #suspension: Suspension;
  readonly #pool: WarmPool;
  readonly #clearing: Clearing;
  /** Sandboxes that are up and belong to nobody yet. */
  readonly #pooled = new Set<string>();
  /** Sandboxes that are up, held ones included. */
  readonly #live = new Map<string, LiveSandbox>();
  /** Paused sandboxes, whether they are held in memory or only on disk. */
  readonly #paused = new Map<string, SandboxRecord>();
  /** Sandboxes that were handed over and do not have their settings yet. */
  #settling = 0;
  readonly #queue = new KeyedQueue();
  #stopping = false;

  constructor(options: NodeOptions, log: Log) {
    super();
    this.#log = log;
    this.#agentFile = options.programs.agent;
    this.#layout = new Layout(options.stateDir);
    this.#records = new Records(this.#layout);
    this.#machine = new Machine(
      this.#layout,
      this.#records,
      options.programs,
      {
        range: options.networkRange,
        nameServers: options.nameServers ?? [],
        limits: { connections: options.sandboxConnections ?? 4096, bytesPerSecond: options.sandboxBytesPerSecond },
        denied: (denial) => this.emit('denied', denial),
      },
      log,
    );
    this.#suspension = new Suspension(this.#machine, this.#records, this.#layout, options.pauseHoldMs ?? HOLD_MS, log);
    const processors = new Processors();
    const isBusy = () => processors.isBusy();
    this.#pool = new WarmPool(
      {
        ...options.warmPool,
        isBusy,
        boot: (kind) => this.#bootAhead(kind),
        discard: (sandboxId) => this.destroy(sandboxId),
      },
      log,
    );
    this.#clearing = new Clearing(() => this.#pool.isCreating || isBusy(), log);
    this.#relief = new Relief(
      () => this.#live.values(),
      (event) => this.emit('relief', event),
      (sandbox, why) => this.#putAnEndTo(sandbox, why),
      log,
    );
  }

  /** Runtimes that can be used on this machine. */
  get runtimes(): RuntimeName[] {
    return this.#machine.runtimes;
  }

  get layers(): Layers {
    return this.#machine.layers;
  }

  /** Changes to trees of files without running anything of them. */
  get edits(): RootEdits {
    return this.#machine.edits;
  }

  /** Takes what a sandbox has changed of its root as a new layer. The sandbox is held for that and stays so: it is of no other use. */
  exportLayer(sandboxId: string, layer: string, signal?: AbortSignal): Promise<void> {
    return this.#queue.run(sandboxId, async () => {
      const sandbox = this.#get(sandboxId);
      const runtime = this.#machine.runtime(sandbox.record.runtime);
      await runtime.hold(sandbox);
      await this.layers.make(layer, (rootfs) => runtime.exportChanges(sandbox, rootfs, this.edits, signal));
    });
  }

  /** Layers that sandboxes or snapshots of this machine stand on. */
  layersInUse(): Promise<Set<string>> {
    return layersInUse(this.#layout);
  }

  /** Adopts the sandboxes that run, clears away what was half made, and is then ready. */
  async start(): Promise<void> {
    await mkdir(this.#layout.snapshotsDir, { recursive: true, mode: 0o700 });
    await mkdir(this.#layout.sandboxesDir, { recursive: true });
    // The root of a container is an ordinary user out here and must get through to its root directory; it cannot look around.
    for (const directory of [this.#layout.stateDir, this.#layout.sandboxesDir]) await chmod(directory, 0o711);
    this.#machine.helper.start();
    await this.#machine.layers.start();
    await this.#machine.disks.start();
    await this.#machine.groups.start();
    const found = await this.#records.all();
    const alive: SandboxRecord[] = [];
    const dead: [string, SandboxRecord | undefined][] = [];
    for (const [id, record] of found) {
      const processes = this.#machine.groups.group(id).processes();
      if (record !== undefined && isKept(record) && processes.includes(record.pid)) alive.push(record);
      else dead.push([id, record]);
    }
    await this.#machine.slots.start(
      alive.flatMap(({ id, slot, network = OPEN_POLICY }) =>
        slot === undefined ? [] : [{ index: slot, sandboxId: id, policy: network }],
      ),
    );
    for (const record of alive) await this.#adopt(record);
    for (const [id, record] of dead) await this.#clearDead(id, record);
    await this.#clearStrays(new Set(found.keys()));
    this.#relief.start();
    this.#pool.start();
    if (found.size > 0)
      this.#log.info('found sandboxes', { running: alive.length, paused: this.#paused.size, found: found.size });
  }

  /** Lets go of the machine; sandboxes run on. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#pool.stop();
    this.#suspension.stop();
    await this.#relief.stop();
    await this.#queue.idle();
    await this.#clearing.drain();
    for (const sandbox of this.#live.values()) sandbox.close('the service stops');
    await this.#machine.slots.stop();
    await this.#machine.helper.stop();
    if (this.#live.size === 0) await this.#machine.groups.removeScope();
  }

  /** Sets a sandbox aside that is booted already, for a create under its id; undefined where none is ready. */
  reserve(kind: WarmKind): Promise<string | undefined> {
    return this.#pool.take(kind);
  }

  /** Boots some of a kind ahead before anybody asks for one. */
  expect(kind: WarmKind): void {
    this.#pool.expect(kind);
  }

  /** Boots a sandbox, or hands over the one that was reserved under its id. Resolves to whether it was that. */
  create(request: CreateOnNode, signal?: AbortSignal): Promise<boolean> {
    return this.#queue.run(request.sandboxId, async () => {
      if (this.#pooled.has(request.sandboxId)) {
        await this.#handOver(request, signal);
        return true;
      }
      await this.#pool.whileCreating(() => this.#create(request, { state: 'running', signal }));
      return false;
    });
  }

  /** Ends a sandbox. What it stood on is cleared away soon after. One that is not here is success. */
  destroy(sandboxId: string): Promise<void> {
    const sandbox = this.#live.get(sandboxId);
    if (sandbox !== undefined) {
      sandbox.ending = true;
      sandbox.close('the sandbox was killed');
    }
    return this.#queue.run(sandboxId, async () => {
      const live = this.#live.get(sandboxId);
      if (live !== undefined) live.ending = true;
      const record = live?.record ?? this.#paused.get(sandboxId);
      this.#forget(sandboxId);
      await this.#machine.end(sandboxId);
      this.#clearing.add(sandboxId, () => this.#clear(sandboxId, record));
    });
  }

  /** The sandboxes of this machine and what they are doing. */
  list(): Map<string, NodeSandboxState> {
    const states = new Map<string, NodeSandboxState>();
    for (const id of this.#live.keys()) if (!this.#pooled.has(id)) states.set(id, 'running');
    for (const id of this.#paused.keys()) states.set(id, 'paused');
    return states;
  }

  /** What is kept of a sandbox that is up. */
  record(sandboxId: string): Readonly<SandboxRecord> {
    return this.#get(sandboxId).record;
  }

  /** Stops a sandbox and writes it down. When that fails it runs on. `requireAgent` refuses while nothing in it answers. */
  pause(sandboxId: string, options: { memory: boolean; requireAgent?: boolean }): Promise<void> {
    return this.#queue.run(sandboxId, async () => {
      if (this.#paused.has(sandboxId)) return;
      const sandbox = this.#get(sandboxId);
      if (options.requireAgent) await this.#suspension.requireAgent(sandbox);
      const kept = await this.#suspension.pause(sandbox, options);
      this.#paused.set(sandboxId, sandbox.record);
      if (kept === 'on disk') this.#live.delete(sandboxId);
      else this.#suspension.dropLater(sandbox, () => this.#dropHeld(sandbox));
    });
  }

  /** Lets a paused sandbox go on. Resolves to whether its memory came back; if not, `detail` says why. */
  resume(
    sandboxId: string,
    options: { memory: boolean; guest: GuestConfig; network?: NodeNetwork },
  ): Promise<{ memory: boolean; detail: string }> {
    return this.#queue.run(sandboxId, async () => {
      const record = this.#paused.get(sandboxId);
      if (record === undefined) {
        this.#get(sandboxId);
        return { memory: true, detail: '' };
      }
      record.guest = options.guest;
      if (options.network !== undefined) await this.#replaceNetwork(record, options.network);
      const held = this.#live.get(sandboxId);
      if (held !== undefined && options.memory) {
        try {
          await this.#suspension.release(held);
          this.#paused.delete(sandboxId);
          return { memory: true, detail: '' };
        } catch (error) {
          this.#log.error('a held sandbox does not go on', { sandbox: sandboxId, error: messageOf(error) });
        }
      }
      const result = await this.#suspension.restore(record, held, options.memory, (sandbox) => this.#watch(sandbox));
      this.#live.set(sandboxId, result.sandbox);
      this.#paused.delete(sandboxId);
      return { memory: result.memory, detail: result.detail };
    });
  }

  /** Changes what a sandbox may reach: in force when this resolves, and connections that are not allowed any more are cut. */
  setNetwork(sandboxId: string, network: NodeNetwork): Promise<void> {
    return this.#queue.run(sandboxId, async () => {
      const sandbox = this.#live.get(sandboxId);
      const record = sandbox?.record ?? this.#paused.get(sandboxId);
      if (record === undefined) throw new SandbarError('not_found', `sandbox ${sandboxId} is not on this machine`);
      if (sandbox === undefined || sandbox.frozen) return this.#replaceNetwork(record, network);
      const needed = needsTrust(record);
      await this.#applyNetwork(sandbox, network);
      if (needed !== needsTrust(record)) await sandbox.agent.configure(guestSettings(record));
    });
  }

  /** Writes a running sandbox down as a snapshot that others can begin from; it goes on. */
  snapshot(
    sandboxId: string,
    snapshotId: string,
    options: { filesOnly: boolean; start?: StartCommand },
  ): Promise<void> {
    return this.#queue.run(sandboxId, async () => {
      if (this.#paused.has(sandboxId)) throw new SandbarError('conflict', `sandbox ${sandboxId} is paused`);
      await this.#suspension.snapshot(this.#get(sandboxId), this.#image(snapshotId), options);
    });
  }

  /** Removes a snapshot; one that is not here is success. */
  async removeSnapshot(snapshotId: string): Promise<void> {
    await this.#pool.forgetSnapshot(snapshotId);
    await this.#image(snapshotId).remove();
  }

  /** The snapshots that are here, whole ones only. */
  async snapshots(): Promise<string[]> {
    const names = await readdir(this.#layout.snapshotsDir);
    return names.filter((name) => !/\.(new|old)$/.test(name) && this.#image(name).exists);
  }

  async usage(sandboxId: string) {
    const sandbox = this.#get(sandboxId);
    if (sandbox.frozen) throw new SandbarError('unavailable', `sandbox ${sandboxId} stands still`);
    const { memoryMb } = sandbox.record.resources;
    const use = await sandbox.group.usage();
    const disk = await sandbox.diskUse(use.cpuUsec);
    return {
      cpuUsec: use.cpuUsec,
      pids: use.pids,
      memoryUsedBytes: Math.max(0, use.memoryBytes - use.cacheBytes),
      memoryCacheBytes: use.cacheBytes,
      memoryTotalBytes: memoryMb * MIB,
      diskUsedBytes: disk.usedBytes,
      diskTotalBytes: disk.totalBytes,
    };
  }

  agent(sandboxId: string): LiveSandbox['agent'] {
    return this.#get(sandboxId).agent;
  }

  lifetime(sandboxId: string): AbortSignal {
    return this.#get(sandboxId).lifetime;
  }

  dial(sandboxId: string, port: number, signal?: AbortSignal): Promise<Duplex> {
    return this.#get(sandboxId).dial(port, signal);
  }

  follow(sandboxId: string, follower: Follower): GuestAccess | undefined {
    return this.#live.get(sandboxId)?.follow(follower);
  }

  async settled(sandboxId: string): Promise<void> {
    await this.#live.get(sandboxId)?.agent.settled();
  }

  unfollow(follower: Follower): void {
    for (const sandbox of this.#live.values()) sandbox.unfollow(follower);
  }

  #get(sandboxId: string): LiveSandbox {
    const sandbox = this.#live.get(sandboxId);
    if (sandbox === undefined) throw new SandbarError('not_found', `sandbox ${sandboxId} is not on this machine`);
    return sandbox;
  }

  #image(snapshotId: string): Image {
    return new Image(path.join(this.#layout.snapshotsDir, snapshotId));
  }

  #bootAhead(kind: WarmKind): BootAhead {
    const sandboxId = newSandboxId();
    let inBackground = true;
    const hurry = () => {
      inBackground = false;
      this.#machine.groups.group(sandboxId).setBackground(false);
    };
    const guest = { env: {}, defaultUser: 'root', defaultWorkdir: '' };
    const booting = this.#queue.run(sandboxId, () =>
      this.#create({ ...kind, sandboxId, guest }, { state: 'pooled', inBackground: () => inBackground }),
    );
    // On a machine that has no time to spare it would not come to its end.
    const patience = setTimeout(hurry, BACKGROUND_MS);
    return { booted: booting.then(() => sandboxId).finally(() => clearTimeout(patience)), hurry };
  }

  /** Makes a pooled sandbox somebody's. */
  async #handOver(request: CreateOnNode, signal?: AbortSignal): Promise<void> {
    const sandbox = this.#get(request.sandboxId);
    const { record, agent } = sandbox;
    record.guest = request.guest;
    record.state = 'running';
    sandbox.group.setBackground(false);
    try {
      if (request.network !== undefined) await this.#applyNetwork(sandbox, request.network, signal);
      agent.configureFirst(guestSettings(record));
      const settled = this.#settle(sandbox);
      await this.#records.write(record);
      // Whatever is asked of the sandbox comes after it: so one that is alone does not wait for it. Of many, those who came first are to have the
      // use of theirs before others are begun.
      if (this.#settling > 1) await settled;
      this.#pooled.delete(request.sandboxId);
    } catch (error) {
      await this.#remove(record.id, record);
      throw error;
    }
  }

  /** Never fails: what could not be set is met again by whoever asks something of the sandbox. */
  async #settle({ agent }: LiveSandbox): Promise<void> {
    this.#settling++;
    await agent.settled().catch(() => undefined);
    this.#settling--;
  }

  async #create(request: CreateOnNode, options: BootOptions & { state: 'running' | 'pooled' }): Promise<void> {
    const { state, signal } = options;
    if (this.#stopping) throw new SandbarError('unavailable', 'the service is stopping');
    const origin = request.snapshotId === undefined ? undefined : this.#image(request.snapshotId);
    const image = await origin?.info();
    const secret = randomHex(32);
    const record: SandboxRecord = {
      id: request.sandboxId,
      runtime: image?.runtime ?? request.runtime,
      templateId: request.templateId,
      buildId: request.buildId,
      layers: image?.layers ?? request.layers,
      resources: image?.resources ?? request.resources,
      guest: request.guest,
      ...(request.network !== undefined && { network: request.network.policy }),
      agentFile: image?.agentFile ?? this.#agentFile,
      slot: undefined,
      secret,
      pid: 0,
      state: 'booting',
      held: false,
    };
    const from: BootSource | undefined = origin && {
      kind: image?.memory ? 'memory' : 'files',
      imageDir: origin.directory,
    };
    this.#machine.slots.setSecrets(record.id, request.network?.secrets ?? {});
    try {
      const sandbox = await this.#machine.bringUp(
        record,
        { ...(from !== undefined && { from }), agentSecret: image?.memory ? image.secret : secret },
        (booted) => this.#watch(booted),
        options,
      );
      if (image?.start !== undefined && !image.memory) await runStartCommand(sandbox.agent, image.start, signal);
      if (state === 'pooled' && record.runtime === 'gvisor' && !image?.memory) await runFirstProcess(sandbox.agent);
      record.state = state;
      await this.#records.write(record);
      if (state === 'pooled') {
        sandbox.group.setBackground(true);
        this.#pooled.add(record.id);
      }
      this.#live.set(record.id, sandbox);
    } catch (error) {
      await this.#remove(record.id, record).catch((clearing) =>
        this.#log.error('cannot clear a sandbox that did not start', {
          sandbox: record.id,
          error: messageOf(clearing),
        }),
      );
      throw error;
    }
  }

  /** Puts a policy in force around a sandbox that runs. */
  async #applyNetwork(sandbox: LiveSandbox, network: NodeNetwork, signal?: AbortSignal): Promise<void> {
    await this.#replaceNetwork(sandbox.record, network);
    await this.#machine.trustAuthority(sandbox, signal);
  }

  /** Notes a policy, and puts it in force where the sandbox has a place on the network. */
  async #replaceNetwork(record: SandboxRecord, { policy, secrets }: NodeNetwork): Promise<void> {
    this.#machine.slots.setSecrets(record.id, secrets);
    if (isDeepStrictEqual(record.network ?? OPEN_POLICY, policy)) return;
    record.network = policy;
    // Written first: after a crash in between, what is in force must not be wider than what was asked for.
    await this.#records.write(record);
    if (record.slot !== undefined) await this.#machine.slots.setPolicy(record.slot, record.id, policy);
  }

  async #adopt(record: SandboxRecord): Promise<void> {
    const sandbox = this.#machine.adopt(record);
    this.#live.set(record.id, sandbox);
    await this.#watch(sandbox);
    if (record.state === 'paused') {
      sandbox.frozen = true;
      this.#paused.set(record.id, record);
      this.#suspension.dropLater(sandbox, () => this.#dropHeld(sandbox));
    } else {
      // The service may have ended before the sandbox had its settings.
      sandbox.agent.configureFirst(guestSettings(record));
      if (record.held) await this.#suspension.undoPause(sandbox);
    }
  }

  /** A sandbox found without its process: a paused one is kept, another is gone with the machine that ran it. */
  async #clearDead(id: string, record: SandboxRecord | undefined): Promise<void> {
    if (record?.state !== 'paused') return this.#remove(id, record);
    await this.#suspension.settleOnDisk(record);
    this.#paused.set(id, record);
  }

  async #watch(sandbox: LiveSandbox): Promise<void> {
    await this.#machine.helper.watchExit(sandbox.id, sandbox.record.pid, () => {
      void this.#ended(sandbox).catch((error) =>
        this.#log.error('cannot clear an ended sandbox', { sandbox: sandbox.id, error: messageOf(error) }),
      );
    });
    this.#relief.watch(sandbox, this.#machine.helper);
  }

  /** The sandbox's process is gone. If nobody asked for that, says why, and clears up; a paused one is still on disk. */
  async #ended(sandbox: LiveSandbox): Promise<void> {
    if (sandbox.ending || this.#stopping) return;
    if (this.#paused.has(sandbox.id)) return this.#dropHeld(sandbox);
    this.#pool.lost(sandbox.id);
    sandbox.ending = true;
    sandbox.close('the sandbox ended');
    const wasPooled = this.#pooled.has(sandbox.id);
    const exit = await this.#whyEnded(sandbox);
    this.#log.warn('a sandbox ended by itself', { sandbox: exit.sandboxId, reason: exit.reason, detail: exit.detail });
    await this.#queue.run(sandbox.id, () => this.#remove(sandbox.id, sandbox.record));
    if (!wasPooled) this.emit('exit', exit);
  }

  /** Kills what runs of a sandbox that is past help; the end of its process is then told as any other, with this reason. */
  #putAnEndTo(sandbox: LiveSandbox, why: string): void {
    sandbox.verdict = why;
    sandbox.group
      .kill()
      .catch((error) => this.#log.error('cannot end a sandbox', { sandbox: sandbox.id, error: messageOf(error) }));
  }

  async #whyEnded(sandbox: LiveSandbox): Promise<NodeExit> {
    const { id: sandboxId, runtime, resources } = sandbox.record;
    const atMs = Date.now();
    if (sandbox.verdict !== undefined) return { sandboxId, reason: 'crash', detail: sandbox.verdict, atMs };
    const kills = await sandbox.group.oomKills().catch(() => 0);
    if (kills > 0)
      return {
        sandboxId,
        reason: 'oom',
        detail: `out of memory: the limit of ${resources.memoryMb} MB was exceeded`,
        atMs,
      };
    const words = await this.#machine.runtime(runtime).lastWords(sandbox.directory);
    const end = words ?? 'the sandbox process ended unexpectedly';
    const detail = sandbox.strain === undefined ? end : `${sandbox.strain}: ${end}`;
    return { sandboxId, reason: 'crash', detail, atMs };
  }

  /** A paused sandbox that was still held in memory is left to its disk. */
  #dropHeld(sandbox: LiveSandbox): Promise<void> {
    return this.#queue.run(sandbox.id, async () => {
      if (!this.#paused.has(sandbox.id) || this.#live.get(sandbox.id) !== sandbox) return;
      this.#live.delete(sandbox.id);
      await this.#suspension.drop(sandbox);
    });
  }

  /** Removes everything of a sandbox. Safe to repeat. */
  async #remove(id: string, record: SandboxRecord | undefined): Promise<void> {
    this.#forget(id);
    await this.#clear(id, record);
  }

  #forget(id: string): void {
    this.#live.delete(id);
    this.#pooled.delete(id);
    this.#paused.delete(id);
    this.#suspension.forget(id);
    this.#machine.slots.setSecrets(id, {});
  }

  async #clear(id: string, record: SandboxRecord | undefined): Promise<void> {
    await this.#machine.takeDown(id, record);
    await this.#machine.helper.do(remove(this.#layout.sandboxDir(id)));
  }

  /** Groups, views and half-made snapshots left without an owner. */
  async #clearStrays(known: ReadonlySet<string>): Promise<void> {
    for (const name of await this.#machine.groups.names()) if (!known.has(name)) await this.#remove(name, undefined);
    await this.#machine.removeStrayRoots();
    for (const name of await readdir(this.#layout.snapshotsDir))
      await this.#image(name.replace(/\.(new|old)$/, '')).recover();
  }
}

/** Whether a sandbox is to be found again after a restart; one that was booting or belonged to nobody is not. */
function isKept(record: SandboxRecord): boolean {
  return (record.state === 'running' || record.state === 'paused') && record.pid !== 0;
}
