import { createHash } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Authority } from '../../core/certificates.ts';
import { runCommand } from '../../core/command.ts';
import { SandbarError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import type { HostHelper } from '../host-helper.ts';
import { AddressRange } from './addresses.ts';
import { limitBandwidth } from './bandwidth.ts';
import { cutForbidden } from './connections.ts';
import { type Denial, Denials } from './denials.ts';
import { Dialer } from './egress/dialer.ts';
import { EgressProxy } from './egress/egress-proxy.ts';
import { Interceptor } from './egress/interceptor.ts';
import { Lookup } from './egress/lookup.ts';
import { Occupants } from './occupants.ts';
import { CompiledPolicy, type NetworkPolicy, OPEN_POLICY } from './policy.ts';
import { Resolver, type ResolverPorts } from './resolver.ts';
import { Fence, type FencedSlot } from './rules.ts';

/** A place on the network: a namespace with one interface, its address, the machine's end of it. */
export interface Slot {
  index: number;
  netnsFile: string;
  host: string;
  guest: string;
}

/** What one sandbox may use of the machine's network. */
export interface TrafficLimits {
  /** Connections and UDP flows it may have begun and not ended. */
  connections: number;
  /** Bytes a second each way; undefined: no limit. */
  bytesPerSecond: number | undefined;
}

export interface NetworkOptions {
  scope: string;
  /** A range given by the operator; else a free one is chosen and remembered. */
  range: string | undefined;
  /** Where the chosen range and the ports of resolver and egress proxy are remembered. */
  stateFile: string;
  /** Slots kept ready. */
  ready: number;
  /** DNS servers given by the operator, `address[:port]`; none: the machine's own. */
  nameServers: readonly string[];
  limits: TrafficLimits;
  /** The authority that signs for names with header rules. */
  authority: () => Promise<Authority>;
  /** Hears of what sandboxes tried to reach and may not. */
  denied: (denial: Denial) => void;
}

/** A slot that a sandbox lives in since before the service started. */
export interface AdoptedSlot {
  index: number;
  sandboxId: string;
  policy: NetworkPolicy;
}

/** Between a change of policy and the moment when the kernel forgets the connections that it forbids. */
const CUT_AFTER_MS = 1_000;
const MOST_MADE_AT_ONCE = 16;
const MOST_CLEARED_AT_ONCE = 64;
const LATER_MS = 200;
const CLEAR_AFTER_MS = 500;
const CLEAR_AGAIN_MS = 1_000;
const NETNS_DIR = '/run/netns';
const OPEN = new CompiledPolicy(OPEN_POLICY);

/** Network slots, made ahead and given back clean: a used one is taken apart whole and made anew. */
export class NetworkSlots {
  readonly #options: NetworkOptions;
  readonly #helper: HostHelper;
  readonly #log: Log;
  readonly #resolver: Resolver;
  readonly #occupants = new Occupants();
  readonly #denials: Denials;
  #egress: EgressProxy | undefined;
  readonly #ready: Slot[] = [];
  readonly #used = new Set<number>();
  /** Freed indexes, oldest first: an address rests as long as possible before somebody else has it. */
  readonly #free: number[] = [];
  /** Slots given back and not yet taken apart. */
  readonly #released = new Set<number>();
  #clearing: Promise<void> | undefined;
  #refilling: NodeJS.Timeout | undefined;
  /** Sandboxes that want a slot now. */
  #waiting = 0;
  #fence: Fence | undefined;
  #range = new AddressRange('10.213.0.0/16');
  #filling: Promise<void> | undefined;
  readonly #stopping = new AbortController();

  constructor(options: NetworkOptions, helper: HostHelper, log: Log) {
    this.#options = options;
    this.#helper = helper;
    this.#log = log;
    this.#denials = new Denials({
      table: this.#table,
      sandboxAt: (place) => this.#occupants.of(this.#guestAt(place))?.sandboxId,
      report: options.denied,
      helper,
      log,
    });
    this.#resolver = new Resolver({
      servers: options.nameServers,
      occupants: this.#occupants,
      denied: (guest, name) => this.#denials.note(guest, 'dns', name, 53),
      log,
    });
  }

  /** Raises the fence around the slots that sandboxes still live in, removes the others, makes new ones. */
  async start(adopted: readonly AdoptedSlot[]): Promise<void> {
    const remembered = await this.#remembered();
    this.#range = new AddressRange(this.#options.range ?? remembered.range ?? (await this.#chooseRange()));
    this.#egress = this.#makeEgress();
    const resolverPorts = await this.#resolver.start(remembered);
    const egressPort = await this.#egress.start(remembered.egressPort ?? 0);
    await writeFile(this.#options.stateFile, JSON.stringify({ range: this.#range.cidr, ...resolverPorts, egressPort }));
    await writeFile('/proc/sys/net/ipv4/ip_forward', '1');
    this.#fence = new Fence(
      {
        table: this.#table,
        interfacePrefix: this.#prefix,
        range: this.#range.cidr,
        ...resolverPorts,
        egressPort,
        connections: this.#options.limits.connections,
      },
      this.#helper,
    );
    for (const { index, sandboxId, policy } of adopted) {
      this.#used.add(index);
      this.#occupy(index, sandboxId, new CompiledPolicy(policy));
    }
    await this.#fence.raise(adopted.map(({ index }) => this.#fenced(index)));
    for (let index = 0; index < this.#range.slotCount; index++) if (!this.#used.has(index)) this.#free.push(index);
    this.#denials.start();
    await this.#removeStrays();
    await this.#fill();
  }

  /** Stops making slots and removes the unused ones; the fence stays up for the sandboxes that go on. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    clearTimeout(this.#refilling);
    await this.#filling?.catch(() => undefined);
    await this.#clearing;
    const idle = this.#ready.splice(0);
    for (const slot of idle) await this.#takeApart(slot.index);
    await this.#fence?.expel(idle.map((slot) => this.#fenced(slot.index)));
    await this.#denials.stop();
    await this.#resolver.stop();
    await this.#egress?.stop();
    if (this.#used.size === 0) await this.#fence?.lower();
  }

  /** A clean slot; one that is ready, else one of those made next, several at a time for all who wait. */
  async acquire(): Promise<Slot> {
    this.#waiting++;
    try {
      for (;;) {
        const slot = this.#ready.shift();
        if (slot !== undefined) {
          this.#used.add(slot.index);
          return slot;
        }
        if (this.#free.length === 0 && this.#filling === undefined) await this.#clearing;
        if (this.#free.length === 0 && this.#filling === undefined)
          throw new SandbarError('exhausted', 'no network slot is free');
        await this.#fill();
      }
    } finally {
      this.#waiting--;
      if (this.#ready.length < this.#options.ready / 2) this.#refill();
      else this.#refillSoon();
    }
  }

  /**
   * Gives a used slot to a sandbox, with what it may reach; or changes that. In force for every packet from when this resolves, and
   * connections that are not allowed any more are cut.
   */
  async setPolicy(index: number, sandboxId: string, policy: NetworkPolicy): Promise<void> {
    const { guest } = this.slot(index);
    const before = this.#occupants.of(guest);
    const compiled = new CompiledPolicy(policy);
    this.#occupy(index, sandboxId, compiled);
    if (before?.sandboxId === sandboxId && isDeepStrictEqual(before.policy.source, policy)) return;
    await this.#fence?.setPolicy(this.#fenced(index));
    if (before?.sandboxId !== sandboxId) return;
    this.#egress?.reconsider(guest);
    await cutForbidden(this.#helper, guest, compiled, 'datagrams');
    this.#cutLater(guest, sandboxId);
  }

  #cutLater(guest: string, sandboxId: string): void {
    const cut = async () => {
      const occupant = this.#occupants.of(guest);
      if (occupant?.sandboxId === sandboxId) await cutForbidden(this.#helper, guest, occupant.policy, 'connections');
    };
    const late = () => {
      cut().catch((error) => this.#log.warn('connections cannot be cut', { sandbox: sandboxId, error: String(error) }));
    };
    setTimeout(late, CUT_AFTER_MS).unref();
  }

  /** The values that a sandbox's header rules name, wherever it is or will be; none: it is gone. */
  setSecrets(sandboxId: string, secrets: Record<string, string>): void {
    this.#occupants.setSecrets(sandboxId, secrets);
  }

  /**
   * Gives a used slot back, whose sandbox is gone: nothing goes in or out through it any more. It is taken apart in the background, several at a
   * time; its addresses come back last in line.
   */
  release(index: number): void {
    if (!this.#used.has(index) || this.#released.has(index)) return;
    const { guest } = this.slot(index);
    this.#released.add(index);
    this.#occupants.remove(guest);
    this.#egress?.cutAll(guest);
    this.#clearing ??= this.#clearReleased().finally(() => {
      this.#clearing = undefined;
    });
  }

  slot(index: number): Slot {
    return { index, netnsFile: `${NETNS_DIR}/${this.#netns(index)}`, ...this.#range.slot(index) };
  }

  get #prefix(): string {
    return `sb${this.#options.scope}`;
  }

  get #table(): string {
    return `sandbar_${this.#options.scope}`;
  }

  #makeEgress(): EgressProxy {
    return new EgressProxy({
      originOf: (client, local) => this.#helper.originalDestination(client, local),
      occupants: this.#occupants,
      dialer: new Dialer(new Lookup(this.#options.nameServers), this.#range.cidr),
      interceptor: new Interceptor(this.#options.authority),
      denied: (guest, host, port) => this.#denials.note(guest, 'tcp', host, port),
      log: this.#log,
    });
  }

  /** The address behind an interface of ours; an address is its own. */
  #guestAt(place: string): string {
    if (!place.startsWith(`${this.#prefix}n`)) return place;
    return this.#range.slot(Number(place.slice(this.#prefix.length + 1))).guest;
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

  #occupy(index: number, sandboxId: string, policy: CompiledPolicy): void {
    this.#occupants.set({ sandboxId, guest: this.#range.slot(index).guest, policy });
  }

  /** Not at once, so that what was asked for comes first, and several are made together. */
  #refillSoon(): void {
    this.#refilling ??= setTimeout(() => {
      this.#refilling = undefined;
      this.#refill();
    }, LATER_MS).unref();
  }

  #refill(): void {
    if (this.#stopping.signal.aborted) return;
    this.#fill().catch((error) => this.#log.error('cannot make network slots', { error: String(error) }));
  }

  /** Makes a batch of slots: for those who wait, and some to have ready. */
  #fill(): Promise<void> {
    this.#filling ??= this.#fillOnce().finally(() => {
      this.#filling = undefined;
    });
    return this.#filling;
  }

  async #fillOnce(): Promise<void> {
    const wanted = Math.min(MOST_MADE_AT_ONCE, this.#waiting + this.#options.ready - this.#ready.length);
    if (wanted > 0 && this.#free.length > 0) this.#ready.push(...(await this.#make(wanted)));
    // Somebody may have taken one and asked for more while these were made.
    if (this.#ready.length < this.#options.ready && this.#free.length > 0) this.#refillSoon();
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

  async #clearReleased(): Promise<void> {
    while (this.#released.size > 0) {
      // One command for many costs what it costs for one, and what begins now comes first.
      await delay(CLEAR_AFTER_MS, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
      const batch = [...this.#released].slice(0, MOST_CLEARED_AT_ONCE);
      try {
        await Promise.all(batch.map((index) => this.#takeApart(index)));
        await this.#fence?.expel(batch.map((index) => this.#fenced(index)));
        await this.#helper.forgetFlows(batch.map((index) => this.slot(index).guest));
        for (const index of batch) {
          this.#released.delete(index);
          this.#used.delete(index);
          this.#free.push(index);
        }
      } catch (error) {
        this.#log.error('cannot take network slots apart', { slots: batch.join(' '), error: String(error) });
        if (this.#stopping.signal.aborted) return;
        await delay(CLEAR_AGAIN_MS);
      }
    }
  }

  async #build(slots: readonly Slot[]): Promise<void> {
    const { bytesPerSecond } = this.#options.limits;
    await Promise.all(
      slots.map(async ({ index, host, guest }) => {
        const cable = { netns: this.#netns(index), interfaceName: this.#interface(index), host };
        await this.#helper.makeSlot(cable.netns, cable.interfaceName, host, guest);
        if (bytesPerSecond !== undefined) await limitBandwidth(this.#helper, cable, bytesPerSecond);
      }),
    );
  }

  async #takeApart(index: number): Promise<void> {
    await this.#helper.removeSlot(this.#netns(index), this.#interface(index));
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

  async #remembered(): Promise<Partial<ResolverPorts> & { range?: string; egressPort?: number }> {
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
