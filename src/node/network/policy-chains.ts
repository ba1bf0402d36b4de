import type { CompiledPolicy } from './policy.ts';

/** What chains of a slot are made from. */
export interface ChainedSlot {
  index: number;
  interfaceName: string;
  policy: CompiledPolicy;
}

interface ChainOptions {
  table: string;
  resolverPort: number;
  refusalPort: number;
  egressPort: number;
}

/**
 * The policy of one slot as nft reads it: a chain that every packet out of the sandbox passes (not only the first of a connection, so that
 * what a change forbids stops at once), and one that turns new connections to the resolver or the egress proxy. Address lists are sets in the
 * rule itself, which go with it.
 */
export function chainsOf(options: ChainOptions, slot: ChainedSlot): string {
  const { table, egressPort } = options;
  const [outgoing, diverted] = chainNames(slot);
  const outgoingRules = outgoingRulesOf(slot.policy);
  const divertedRules = [...nameServiceRulesOf(slot.policy, options), ...egressRulesOf(slot.policy, egressPort)];
  return [
    ...[outgoing, diverted].flatMap((chain) => [
      `add chain inet ${table} ${chain}`,
      `flush chain inet ${table} ${chain}`,
    ]),
    ...outgoingRules.map((rule) => `add rule inet ${table} ${outgoing} ${rule}`),
    ...divertedRules.map((rule) => `add rule inet ${table} ${diverted} ${rule}`),
    `add element inet ${table} outgoing { "${slot.interfaceName}" : goto ${outgoing} }`,
    `add element inet ${table} diverted { "${slot.interfaceName}" : goto ${diverted} }`,
    '',
  ].join('\n');
}

/** Takes the chains of a slot away, which must be there. */
export function removedChainsOf(table: string, slot: ChainedSlot): string {
  const [outgoing, diverted] = chainNames(slot);
  return [
    `delete element inet ${table} outgoing { "${slot.interfaceName}" }`,
    `delete element inet ${table} diverted { "${slot.interfaceName}" }`,
    ...[outgoing, diverted].flatMap((chain) => [
      `flush chain inet ${table} ${chain}`,
      `delete chain inet ${table} ${chain}`,
    ]),
    '',
  ].join('\n');
}

function chainNames({ index }: ChainedSlot): [outgoing: string, diverted: string] {
  return [`outgoing_${index}`, `diverted_${index}`];
}

function outgoingRulesOf(policy: CompiledPolicy): string[] {
  // What should have gone to the egress proxy and did not was begun before the rule was there.
  const strays = policy.passage === 'proxied' ? ['meta l4proto tcp goto refused'] : [];
  return [...strays, ...within(policy.allow, 'accept'), ...within(policy.deny, 'goto refused'), 'accept'];
}

/** Questions to a name server: where names rule they are answered by them; else the server's address must be open, and is told so if not. */
function nameServiceRulesOf(policy: CompiledPolicy, { resolverPort, refusalPort }: ChainOptions): string[] {
  const question = 'meta l4proto { tcp, udp } th dport 53';
  const redirect = `redirect to :${resolverPort}`;
  if (policy.isByName) return [`${question} ${redirect}`];
  return [
    ...within(policy.allow, redirect, question),
    ...within(policy.deny, `redirect to :${refusalPort}`, question),
    `${question} ${redirect}`,
  ];
}

function egressRulesOf(policy: CompiledPolicy, egressPort: number): string[] {
  if (policy.passage === 'direct') return ['accept'];
  return [
    // Left to the fence, which refuses it.
    'ip daddr @protected accept',
    ...(policy.passage === 'named' ? within(policy.allow, 'accept') : []),
    `meta l4proto tcp redirect to :${egressPort}`,
    'accept',
  ];
}

/** A rule for packets to the addresses of a set; for all where the set is everything, none where it is empty. */
function within(set: CompiledPolicy['allow'], verdict: string, match = ''): string[] {
  if (set.isEmpty) return [];
  const destination = set.isEverything ? '' : `ip daddr { ${set.elements().join(', ')} }`;
  return [[match, destination, verdict].filter(Boolean).join(' ')];
}
