import type { HostHelper } from '../host-helper.ts';
import { type ChainedSlot, chainsOf, removedChainsOf } from './policy-chains.ts';

export interface FenceOptions {
  /** nft table of this service. */
  table: string;
  /** What every host-side interface of this service begins with. */
  interfacePrefix: string;
  /** CIDR of all slots. */
  range: string;
  /** Port of the service's resolver, on every address. */
  resolverPort: number;
  /** Port on which it refuses every question. */
  refusalPort: number;
  /** Port of the egress proxy, on every address. */
  egressPort: number;
  /** Connections and UDP flows that one sandbox may have begun and not ended. */
  connections: number;
}

/** A slot as the fence knows it. */
export interface FencedSlot extends ChainedSlot {
  guest: string;
}

/** Never reachable from a sandbox, whatever a user allows: this machine, private and shared networks, link-local and metadata, multicast. */
export const PROTECTED_RANGES = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/3',
];

/** Refused packets of one sandbox that are written down, at most. */
const NOTED_A_SECOND = 20;
/** How long a refused destination stays written down; it is told again when it is refused after that. */
export const NOTED_SECONDS = 60;

/**
 * The fence around all sandboxes: an nft table that lives in the kernel, so that it stands while the service does not. It names
 * interfaces by prefix: a slot is fenced before it exists.
 */
export class Fence {
  readonly #options: FenceOptions;
  readonly #helper: Pick<HostHelper, 'run'>;
  /** Interfaces that have chains of their own. */
  readonly #chained = new Set<string>();

  constructor(options: FenceOptions, helper: Pick<HostHelper, 'run'>) {
    this.#options = options;
    this.#helper = helper;
  }

  /**
   * Puts the fence up, or replaces it, around these slots and with their policies. A second one like it stands while it is replaced: the
   * kernel lets single packets through a table that is exchanged, though it is one transaction.
   */
  async raise(slots: readonly FencedSlot[]): Promise<void> {
    if (slots.length > 0) await this.#nft(this.#render(this.#spare, slots));
    await this.#nft(this.#render(this.#options, slots));
    await this.#nft(removed(this.#spare.table));
  }

  async admit(slots: readonly FencedSlot[]): Promise<void> {
    if (slots.length === 0) return;
    await this.#nft(`add element inet ${this.#options.table} slots { ${slots.map(element).join(', ')} }\n`);
  }

  /** Puts a slot's policy in force, in one step: no packet meets half of it. */
  async setPolicy(slot: FencedSlot): Promise<void> {
    const script = this.#chains(slot);
    if (script !== '') await this.#nft(script);
  }

  /** Takes slots out; one that is not in is no error. */
  async expel(slots: readonly FencedSlot[]): Promise<void> {
    if (slots.length === 0) return;
    const elements = slots.map(element).join(', ');
    const chains = slots.map((slot) => this.#removal(slot));
    // Adding first makes the deletion safe to repeat; all is one transaction.
    await this.#nft(
      `${chains.join('')}add element inet ${this.#options.table} slots { ${elements} }\ndelete element inet ${this.#options.table} slots { ${elements} }\n`,
    );
  }

  async lower(): Promise<void> {
    await this.#nft(removed(this.#spare.table) + removed(this.#options.table));
  }

  get #spare(): FenceOptions {
    return { ...this.#options, table: `${this.#options.table}_spare` };
  }

  #render(options: FenceOptions, slots: readonly FencedSlot[]): string {
    this.#chained.clear();
    return renderFence(options, slots) + slots.map((slot) => this.#chains(slot, options)).join('');
  }

  async #nft(script: string): Promise<void> {
    await this.#helper.run('nft', ['-f', '-'], { input: script });
  }

  #chains(slot: FencedSlot, options = this.#options): string {
    if (slot.policy.isOpen) return this.#removal(slot);
    this.#chained.add(slot.interfaceName);
    return chainsOf(options, slot);
  }

  #removal(slot: FencedSlot): string {
    return this.#chained.delete(slot.interfaceName) ? removedChainsOf(this.#options.table, slot) : '';
  }
}

/** Takes a table away that may be there. */
function removed(table: string): string {
  return `table inet ${table}\ndelete table inet ${table}\n`;
}

/** The table as nft reads it, instead of one of its name that may be there. */
export function renderFence(options: FenceOptions, slots: readonly FencedSlot[]): string {
  const { table, interfacePrefix, range, resolverPort, refusalPort, egressPort, connections } = options;
  const resolverPorts = `{ ${resolverPort}, ${refusalPort} }`;
  const sandbox = `"${interfacePrefix}*"`;
  const elements = slots.length > 0 ? `elements = { ${slots.map(element).join(', ')} }` : '';
  return `${removed(table)}table inet ${table} {
  set slots {
    type ifname . ipv4_addr
    ${elements}
  }
  set protected {
    type ipv4_addr
    flags interval
    auto-merge
    elements = { ${[...PROTECTED_RANGES, range].join(', ')} }
  }
  map outgoing {
    type ifname : verdict
  }
  map diverted {
    type ifname : verdict
  }
  set connections {
    type ipv4_addr
    size 65536
    flags dynamic
  }
  set noting {
    type ifname
    size 65536
    flags dynamic
  }
  set refused_ports {
    type ifname . ipv4_addr . inet_proto . inet_service
    size 16384
    flags dynamic,timeout
    timeout ${NOTED_SECONDS}s
  }
  set refused_addresses {
    type ifname . ipv4_addr . inet_proto
    size 16384
    flags dynamic,timeout
    timeout ${NOTED_SECONDS}s
  }
  chain spoofed {
    type filter hook prerouting priority raw; policy accept;
    iifname != ${sandbox} return
    meta nfproto ipv6 drop
    iifname . ip saddr != @slots drop
  }
  chain limited {
    type filter hook prerouting priority mangle; policy accept;
    iifname ${sandbox} ct state new add @connections { ip saddr ct count over ${connections} } goto refused
  }
  chain diverting {
    type nat hook prerouting priority dstnat; policy accept;
    iifname != ${sandbox} return
    iifname vmap @diverted
    meta l4proto { tcp, udp } th dport 53 redirect to :${resolverPort}
  }
  chain machine {
    type filter hook input priority filter - 10; policy accept;
    iifname ${sandbox} goto from_sandbox
    iifname != "lo" meta l4proto { tcp, udp } th dport ${resolverPorts} drop
    iifname != "lo" tcp dport ${egressPort} drop
  }
  chain from_sandbox {
    ct state established,related accept
    meta l4proto { tcp, udp } th dport ${resolverPorts} ct status dnat accept
    tcp dport ${egressPort} ct status dnat accept
    goto refused
  }
  chain passing {
    type filter hook forward priority filter - 10; policy accept;
    iifname ${sandbox} goto leaving_sandbox
    oifname ${sandbox} ct state established,related accept
    oifname ${sandbox} drop
  }
  chain leaving_sandbox {
    ip daddr @protected goto refused
    oifname ${sandbox} goto refused
    iifname vmap @outgoing
    accept
  }
  chain refused {
    add @noting { iifname limit rate ${NOTED_A_SECOND}/second burst ${NOTED_A_SECOND} packets } jump noted
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
  chain noted {
    meta l4proto { tcp, udp } add @refused_ports { iifname . ip daddr . meta l4proto . th dport } return
    add @refused_addresses { iifname . ip daddr . meta l4proto }
  }
  chain masked {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${range} oifname != ${sandbox} masquerade
  }
}
`;
}

function element(slot: FencedSlot): string {
  return `"${slot.interfaceName}" . ${slot.guest}`;
}
