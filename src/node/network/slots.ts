import { createHash } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { runCommand } from '../../core/command.ts';
import { SandbarError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import type { HostHelper } from '../host-helper.ts';
import { AddressRange } from './addresses.ts';
import { cutForbidden, forgetConnections } from './connections.ts';
import { Occupants } from './occupants.ts';
import { CompiledPolicy, type NetworkPolicy, OPEN_POLICY } from './policy.ts';
import { Resolver } from './resolver.ts';
import { Fence, type FencedSlot } from './rules.ts';

/** A place on the network: a namespace with one interface, its address, the machine's end of it. */
export interface Slot {
  index: number;
  netnsFile: string;
  host: string;
  guest: string;
}

export interface NetworkOptions {
  scope: string;
  /** A range given by the operator; else a free one is chosen and remembered. */
  range: string | undefined;
  /** Where the chosen range and the resolver's port are remembered. */
  stateFile: string;
  /** Slots kept ready. */
  ready: number;
}

/** A slot that a sandbox lives in since before the service started. */
export interface AdoptedSlot {
  index: number;
  sandboxId: string;
  policy: NetworkPolicy;
}

const NETNS_DIR = '/run/netns';
const OPEN = new CompiledPolicy(OPEN_POLICY);

/** Network slots, made ahead and given back clean: a used one is taken apart whole and made anew. */
export class NetworkSlots {
  readonly #options: NetworkOptions;
  readonly #helper: HostHelper;
  readonly #log: Log;
  readonly #resolver: Resolver;
  readonly #occupants = new Occupants();
  readonly #ready: Slot[] = [];
  readonly #used = new Set<number>();
  /** Freed indexes, oldest first: an address rests as long as possible before somebody else has it. */
  readonly #free: number[] = [];
  #fence: Fence | undefined;
  #range = new AddressRange('10.213.0.0/16');
  #filling: Promise<void> | undefined;
  #stopped = false;

  constructor(options: NetworkOptions, helper: HostHelper, log: Log) {
    this.#options = options;
    this.#helper = helper;
    this.#log = log;
    this.#resolver = new Resolver({
      servers: [],
      occupants: this.#occupants,
      denied: () => undefined,
      log,
    });
  }

  /** Raises the fence around the slots that sandboxes still live in, removes the others, makes new ones. */
  async start(adopted: readonly AdoptedSlot[]): Promise<void> {
    const remembered = await this.#remembered();
    this.#range = new AddressRange(this.#options.range ?? remembered.range ?? (await this.#chooseRange()));
    const resolverPort = await this.#resolver.start(remembered.resolverPort ?? 0);
    await writeFile(this.#options.stateFile, JSON.stringify({ range: this.#range.cidr, resolverPort }));
    await writeFile('/proc/sys/net/ipv4/ip_forward', '1');
    this.#fence = new Fence({
      table: `sandbar_${this.#options.scope}`,
      interfacePrefix: this.#prefix,
      range: this.#range.cidr,
      resolverPort,
      egressPort: 1,
      limits: { connections: 4096, bytesPerSecond: undefined },
    });
    for (const { index, sandboxId, policy } of adopted) {
      this.#used.add(index);
      this.#occupy(index, sandboxId, new CompiledPolicy(policy));
    }
    await this.#fence.raise(adopted.map(({ index }) => this.#fenced(index)));
    for (let index = 0; index < this.#range.slotCount; index++) if (!this.#used.has(index)) this.#free.push(index);
    await this.#removeStrays();
    await this.#fill();
  }

  /** Stops making slots and removes the unused ones; the fence stays up for the sandboxes that go on. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#filling;
    const idle = this.#ready.splice(0);
    for (const slot of idle) await this.#takeApart(slot.index);
    await this.#fence?.expel(idle.map((slot) => this.#fenced(slot.index)));
    await this.#resolver.stop();
    if (this.#used.size === 0) await this.#fence?.lower();
  }

  /** A clean slot; one that is ready, else made now. */
  async acquire(): Promise<Slot> {
    const slot = this.#ready.shift() ?? (await this.#make(1))[0];
    if (slot === undefined) throw new SandbarError('exhausted', 'no network slot is free');
    this.#used.add(slot.index);
    this.#refill();
    return slot;
  }

  /**
   * Gives a used slot to a sandbox, with what it may reach; or changes that. In force for every packet from when this resolves, and
   * connections that are not allowed any more are cut.
   */
  async setPolicy(
    index: number,
    sandboxId: string,
    policy: NetworkPolicy,
    secrets: Record<string, string> = {},
  ): Promise<void> {
    const { guest } = this.slot(index);
    const before = this.#occupants.of(guest);
    const compiled = new CompiledPolicy(policy);
    this.#occupy(index, sandboxId, compiled, secrets);
    if (before?.sandboxId === sandboxId && isDeepStrictEqual(before.policy.source, policy)) return;
    await this.#fence?.setPolicy(this.#fenced(index));
    if (before?.sandboxId === sandboxId) await cutForbidden(guest, compiled);
  }

  /** Takes a used slot apart; its addresses come back last in line. */
  async release(index: number): Promise<void> {
    if (!this.#used.has(index)) return;
    const { guest } = this.slot(index);
    await this.#takeApart(index);
    await this.#fence?.expel([this.#fenced(index)]);
    this.#occupants.remove(guest);
    await forgetConnections(guest);
    this.#used.delete(index);
    this.#free.push(index);
    this.#refill();
  }

  slot(index: number): Slot {
    return { index, netnsFile: `${NETNS_DIR}/${this.#netns(index)}`, ...this.#range.slot(index) };
  }

  get #prefix(): string {
    return `sb${this.#options.scope}`;
  }

  #netns(index: number): string {
    return `sandbar-${this.#options.scope}-${index}`;
  }

  #interface(index: number): string {
    return `${this.#prefix}n${index}`;
  }

  #fenced(index: number): FencedSlot {
    const { guest } = this.#range.slot(index);
    return { index, interfaceName: this.#interface(index), guest, policy: this.#occupants.of(guest)?.policy ?? OPEN };
  }

  #occupy(index: number, sandboxId: string, policy: CompiledPolicy, secrets: Record<string, string> = {}): void {
    this.#occupants.set({ sandboxId, guest: this.#range.slot(index).guest, policy, secrets });
  }

  #refill(): void {
    if (this.#stopped || this.#filling !== undefined) return;
    this.#filling = this.#fill()
      .catch((error) => this.#log.error('cannot make network slots', { error: String(error) }))
      .finally(() => {
        this.#filling = undefined;
      });
  }

  async #fill(): Promise<void> {
    while (!this.#stopped && this.#ready.length < this.#options.ready && this.#free.length > 0)
      this.#ready.push(...(await this.#make(Math.min(4, this.#options.ready - this.#ready.length))));
  }

  async #make(count: number): Promise<Slot[]> {
    const indexes = this.#free.splice(0, count);
    const slots = indexes.map((index) => this.slot(index));
    try {
      await this.#fence?.admit(indexes.map((index) => this.#fenced(index)));
      await this.#build(slots);
      return slots;
    } catch (error) {
      for (const index of indexes) await this.#takeApart(index).catch(() => undefined);
      this.#free.push(...indexes);
      throw error;
    }
  }

  async #build(slots: readonly Slot[]): Promise<void> {
    const outside = slots.flatMap((slot) => {
      const name = this.#interface(slot.index);
      return [
        `netns add ${this.#netns(slot.index)}`,
        `link add ${name} type veth peer name eth0 netns ${this.#netns(slot.index)}`,
        `link set ${name} addrgenmode none`,
        `addr add ${slot.host}/30 dev ${name}`,
        `link set ${name} up`,
      ];
    });
    await runCommand('ip', ['-batch', '-'], { input: `${outside.join('\n')}\n` });
    await Promise.all(
      slots.map(async (slot) => {
        const inside = [
          'link set lo up',
          `addr add ${slot.guest}/30 dev eth0`,
          'link set eth0 up',
          `route add default via ${slot.host}`,
        ];
        await runCommand('ip', ['-n', this.#netns(slot.index), '-batch', '-'], { input: `${inside.join('\n')}\n` });
        // The namespace belongs to the machine's root, so a container's root has no say in it: what it may do is opened here.
        await this.#helper.netnsSysctl(slot.netnsFile, 'net.ipv4.ip_unprivileged_port_start', '0');
        await this.#helper.netnsSysctl(slot.netnsFile, 'net.ipv4.ping_group_range', '0 2147483647');
      }),
    );
  }

  /** The interface first: deleting the namespace alone lets the kernel do it some time later. */
  async #takeApart(index: number): Promise<void> {
    await runCommand('ip', ['-force', '-batch', '-'], {
      input: `link del ${this.#interface(index)}\nnetns del ${this.#netns(index)}\n`,
      okStatuses: [0, 1],
    });
  }

  /** What an earlier run of the service made and no sandbox lives in. */
  async #removeStrays(): Promise<void> {
    const mark = `sandbar-${this.#options.scope}-`;
    for (const name of await readdir(NETNS_DIR).catch(() => [])) {
      const index = Number(name.slice(mark.length));
      if (name.startsWith(mark) && !this.#used.has(index)) await this.#takeApart(index);
    }
    for (const name of await readdir('/sys/class/net')) {
      const index = Number(name.slice(this.#prefix.length + 1));
      if (name.startsWith(`${this.#prefix}n`) && !this.#used.has(index)) await this.#takeApart(index);
    }
  }

  async #remembered(): Promise<{ range?: string; resolverPort?: number }> {
    try {
      return JSON.parse(await readFile(this.#options.stateFile, 'utf8'));
    } catch {
      return {};
    }
  }

  /** A /16 of 10.192.0.0/10 that no interface or route of the machine touches, so that two services never share one. */
  async #chooseRange(): Promise<string> {
    const { stdout } = await runCommand('ip', ['-4', '-o', 'route', 'show', 'table', 'all']);
    const taken = [...stdout.matchAll(/(\d+\.\d+\.\d+\.\d+)(\/\d+)?/g)]
      .map((match) => new AddressRange(`${match[1]}${match[2] ?? '/32'}`))
      .filter((range) => range.slotCount < 2 ** 28);
    const first = createHash('sha256').update(this.#options.stateFile).digest().readUInt8(0);
    for (let offset = 0; offset < 63; offset++) {
      const range = new AddressRange(`10.${192 + ((first + offset) % 63)}.0.0/16`);
      if (!taken.some((other) => other.overlaps(range))) return range.cidr;
    }
    throw new SandbarError('unavailable', 'no free address range: set SANDBAR_NETWORK_RANGE');
  }
}
