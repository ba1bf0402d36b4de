import { isIP } from 'node:net';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { NetworkPolicySchema } from '../../proto/gen/node_pb.js';
import type { SandboxRow } from './contract.ts';
import type { EgressConfig, EgressProxy, NetworkConfig } from './network-config.ts';

type PolicyMessage = MessageInitShape<typeof NetworkPolicySchema>;

const EVERYTHING = '0.0.0.0/0';
/** A place in a header's value that a secret goes into. */
const SECRET_PLACE = /\$\{e2b\.secrets\.([a-zA-Z0-9_-]+)\}/g;

/** What a sandbox may reach, as the machine is told; `secrets` are the values that its rules name. */
export function networkPolicyOf(
  { network, allowInternetAccess }: Pick<SandboxRow, 'network' | 'allowInternetAccess'>,
  secrets: Record<string, string>,
): PolicyMessage {
  const allowed = network?.allowOut ?? [];
  const denied = network?.denyOut ?? [];
  return {
    allow: allowed.filter(isAddress),
    deny: allowInternetAccess === false ? [...denied, EVERYTHING] : denied,
    allowNames: allowed.filter((entry) => !isAddress(entry)),
    rules: rulesOf(network),
    ...(network?.egressProxy && { egressProxy: socksServerOf(network.egressProxy) }),
    secrets,
  };
}

/** Names of the secrets that the rules of a sandbox use, as secrets are stored: in lower case. */
export function secretNamesIn(network: EgressConfig | null): string[] {
  const values = Object.values(rulesOf(network)).flatMap(({ headers }) => Object.values(headers));
  const names = values.flatMap((value) => [...value.matchAll(SECRET_PLACE)].map((match) => match[1] ?? ''));
  return [...new Set(names.map((name) => name.toLowerCase()))];
}

/** The network of a sandbox with its way out replaced whole; the way in stays. */
export function withEgress(network: NetworkConfig | null, egress: EgressConfig): NetworkConfig {
  const { allowOut: _, denyOut: __, rules: ___, egressProxy: ____, ...ingress } = network ?? {};
  return { ...ingress, ...egress };
}

function rulesOf(network: EgressConfig | null): Record<string, { headers: Record<string, string> }> {
  const entries = Object.entries(network?.rules ?? {}).map(([domain, [rule]]) => [
    domain,
    rule?.transform?.headers ?? {},
  ]);
  return Object.fromEntries(
    entries
      .filter(([, headers]) => Object.keys(headers ?? {}).length > 0)
      .map(([domain, headers]) => [domain, { headers }]),
  );
}

function socksServerOf({ address, username = '', password = '' }: EgressProxy) {
  const colon = address.lastIndexOf(':');
  const host = address.slice(0, colon).replace(/^\[|\]$/g, '');
  return { host: host.toLowerCase(), port: Number(address.slice(colon + 1)), username, password };
}

function isAddress(entry: string): boolean {
  return isIP(entry.split('/', 1)[0] ?? '') !== 0;
}
