import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { Authority } from '../core/certificates.ts';
import type { RuntimeName } from '../core/config.ts';
import { SandbarError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { ControlGroups } from './cgroup.ts';
import { Layers, TMP_MARK } from './disk/layers.ts';
import { RootEdits } from './disk/root-edits.ts';
import { SharedRoots } from './disk/shared-roots.ts';
import { WritableDisks } from './disk/writable-disks.ts';
import { guestSettings, needsTrust, trustInside } from './guest-trust.ts';
import { HostHelper } from './host-helper.ts';
import { remove, removeGroup, unmount } from './host-orders.ts';
import type { Layout } from './layout.ts';
import { LiveSandbox } from './live-sandbox.ts';
import { OPEN_POLICY } from './network/policy.ts';
import { type NetworkOptions, NetworkSlots } from './network/slots.ts';
import type { Records, SandboxRecord } from './record.ts';
import { STALL_HEADROOM_BYTES } from './relief.ts';
import { ContainerRuntime, IDS_PER_SANDBOX } from './runtime/container.ts';
import type { BootSource, Runtime } from './runtime/contract.ts';
import { GvisorRuntime } from './runtime/gvisor.ts';
import { ProcFiles } from './runtime/proc-files.ts';

/** Far from the machine's own users. */
const FIRST_ID = 2 ** 28;
/** All below 2^31: the kernel lets no group beyond that send ICMP. */
const ID_RANGES = (2 ** 31 - FIRST_ID) / IDS_PER_SANDBOX;

export interface Programs {
  agent: string;
  hostHelper: string;
  runsc: string | undefined;
  crun: string | undefined;
}

/** What the operator says about the network of the sandboxes, and who hears of what was refused there. */
export type MachineNetwork = Pick<NetworkOptions, 'range' | 'nameServers' | 'limits' | 'denied'>;

export interface BootOptions {
  /** Asked when it is begun: while this holds it takes processor time from nobody. */
  inBackground?: () => boolean;
  signal?: AbortSignal | undefined;
}

const MIB = 1024 * 1024;
const READY_SLOTS = 8;

/** What a sandbox stands on here (network, control groups, disks, runtimes), put together and taken apart in the right order. */
export class Machine {
  readonly layers: Layers;
  readonly disks: WritableDisks;
  readonly edits: RootEdits;
  readonly helper: HostHelper;
  readonly groups: ControlGroups;
  readonly slots: NetworkSlots;
  readonly #layout: Layout;
  readonly #records: Records;
  readonly #roots: SharedRoots;
  readonly #runtimes = new Map<RuntimeName, Runtime>();
  #authorityMade: Promise<Authority> | undefined;

  constructor(layout: Layout, records: Records, programs: Programs, network: MachineNetwork, log: Log) {
    this.#layout = layout;
    this.#records = records;
    this.helper = new HostHelper(programs.hostHelper, log);
    this.layers = new Layers(layout, this.helper);
    this.disks = new WritableDisks(layout.disksDir, this.helper);
    this.edits = new RootEdits(programs.hostHelper);
    this.groups = new ControlGroups(layout.scope);
    this.#roots = new SharedRoots(layout.mergedDir, this.helper);
    this.slots = new NetworkSlots(
      {
        scope: layout.scope,
        stateFile: layout.networkFile,
        ready: READY_SLOTS,
        authority: () => this.#authority(),
        ...network,
      },
      this.helper,
      log,
    );
    if (programs.runsc !== undefined)
      this.#runtimes.set('gvisor', new GvisorRuntime(programs.runsc, this.#roots, this.helper));
    if (programs.crun !== undefined) {
      const runtime = new ContainerRuntime(
        { crun: programs.crun, hostHelper: programs.hostHelper },
        this.groups.hybrid,
        this.disks,
        new ProcFiles(layout.procFilesDir),
        this.helper,
      );
      this.#runtimes.set('container', runtime);
    }
  }

  get runtimes(): RuntimeName[] {
    return [...this.#runtimes.keys()];
  }

  runtime(name: RuntimeName): Runtime {
    const runtime = this.#runtimes.get(name);
    if (runtime === undefined) throw new SandbarError('unavailable', `the ${name} runtime is not on this machine`);
    return runtime;
  }

  /**
   * Brings a sandbox up as its record says, and sets it up inside. `agentSecret` is the one the agent is born with or remembers; it
   * is changed to the record's. `booted` is told of the process as soon as there is one.
   */
  async bringUp(
    record: SandboxRecord,
    source: { from?: BootSource; agentSecret: string },
    booted: (sandbox: LiveSandbox) => Promise<void>,
    { inBackground, signal }: BootOptions = {},
  ): Promise<LiveSandbox> {
    const runtime = this.runtime(record.runtime);
    const layers = this.layers.directories(record.layers);
    const slot = await this.slots.acquire();
    record.slot = slot.index;
    const { cpuCount, memoryMb, pidsMax, diskSizeMb } = record.resources;
    const group = this.groups.group(record.id);
    await this.#records.write(record);
    await this.slots.setPolicy(slot.index, record.id, record.network ?? OPEN_POLICY);
    group.create(
      { cpuCount, memoryBytes: memoryMb * MIB, pidsMax: runtime.hostPids(pidsMax) },
      this.groups.pickCpus(cpuCount),
    );
    if (inBackground?.()) group.setBackground(true);
    const { pid } = await runtime.boot(
      {
        sandboxId: record.id,
        directory: this.#layout.sandboxDir(record.id),
        layers,
        cpuCount,
        memoryMb,
        diskSizeMb,
        netnsFile: slot.netnsFile,
        idBase: this.#idBase(slot.index),
        group,
        agentFile: record.agentFile,
        agentSecret: source.agentSecret,
        ...(source.from !== undefined && { from: source.from }),
      },
      signal,
    );
    record.pid = pid;
    const sandbox = new LiveSandbox(record, slot, group, this.#layout.sandboxDir(record.id));
    await booted(sandbox);
    try {
      // The limit seen inside was read at boot; what the runtime itself needs comes on top of it.
      const headroom = runtime.name === 'gvisor' ? STALL_HEADROOM_BYTES : 0;
      group.setMemory(memoryMb * MIB + runtime.memoryOverheadBytes, headroom);
      await this.#setUpInside(sandbox, source, signal);
      return sandbox;
    } catch (error) {
      sandbox.ending = true;
      sandbox.close('the sandbox did not start');
      throw error;
    }
  }

  /** A sandbox that runs since before the service did. */
  adopt(record: SandboxRecord): LiveSandbox {
    if (record.slot === undefined)
      throw new SandbarError('internal', `sandbox ${record.id} runs without a network slot`);
    if (record.runtime === 'gvisor') this.#roots.adopt(record.id, this.layers.directories(record.layers));
    return new LiveSandbox(
      record,
      this.slots.slot(record.slot),
      this.groups.group(record.id),
      this.#layout.sandboxDir(record.id),
    );
  }

  /** Ends whatever runs of a sandbox. Safe to repeat. */
  async end(id: string): Promise<void> {
    await this.helper.forget(id);
    await this.groups.group(id).kill();
  }

  /**
   * Ends whatever runs of a sandbox and takes apart what it stood on, in the order in which one thing keeps the next busy. Safe to
   * repeat. Its directory stays, and with `keepDisk` its disk.
   */
  async takeDown(id: string, record: SandboxRecord | undefined, options = { keepDisk: false }): Promise<void> {
    await this.end(id);
    // A directory without a record says nothing of its runtime: each clears what it finds.
    const runtimes = record === undefined ? [...this.#runtimes.values()] : [this.runtime(record.runtime)];
    for (const runtime of runtimes) await runtime.clear(id, this.#layout.sandboxDir(id), options);
    await this.helper.do(...this.groups.directoriesOf(id).map(removeGroup));
    if (record?.slot !== undefined) this.slots.release(record.slot);
  }

  /** Makes a sandbox trust the service's authority, where its rules need that. */
  async trustAuthority({ record, agent }: LiveSandbox, signal?: AbortSignal): Promise<void> {
    if (needsTrust(record)) await trustInside(agent, (await this.#authority()).certificate, signal);
  }

  /** Merged views that no sandbox uses. */
  async removeStrayRoots(): Promise<void> {
    const inUse = this.#roots.inUse;
    for (const name of await readdir(this.#layout.mergedDir).catch(() => [])) {
      const view = path.join(this.#layout.mergedDir, name);
      if (inUse.has(view)) continue;
      await this.helper.do(unmount(view), remove(view));
    }
  }

  async #setUpInside(
    sandbox: LiveSandbox,
    source: { from?: BootSource; agentSecret: string },
    signal?: AbortSignal,
  ): Promise<void> {
    const { record, agent, slot } = sandbox;
    const born = Buffer.from(source.agentSecret, 'hex');
    const secret = Buffer.from(record.secret, 'hex');
    agent.retarget(slot.guest, born);
    await sandbox.awaitAgent(signal);
    const settings = {
      ...guestSettings(record),
      pidsMax: record.resources.pidsMax,
      ...(!born.equals(secret) && { secret }),
    };
    await Promise.all([
      agent.configure(settings, signal),
      source.from === undefined && agent.remove({ user: 'root', path: TMP_MARK }, signal),
    ]);
    if (!born.equals(secret)) agent.retarget(slot.guest, secret);
    await this.trustAuthority(sandbox, signal);
  }

  #authority(): Promise<Authority> {
    this.#authorityMade ??= Authority.open(this.#layout.authorityDir, 'Sandbar egress').catch((error) => {
      this.#authorityMade = undefined;
      throw error;
    });
    return this.#authorityMade;
  }

  /** Each slot has a range of ids of its own; services of different scopes begin at different ones. */
  #idBase(slotIndex: number): number {
    const first = Number.parseInt(this.#layout.scope, 16);
    return FIRST_ID + ((first + slotIndex) % ID_RANGES) * IDS_PER_SANDBOX;
  }
}
