import { AddressSet } from './address-set.ts';

/** What a sandbox may reach, as it is kept on the machine. Everything, when all of it is empty. */
export interface NetworkPolicy {
  /** Addresses and ranges that are open whatever `deny` says. */
  allow: string[];
  /** Addresses and ranges that are closed. */
  deny: string[];
  /** Domains that are open whatever `deny` says: `example.com`, `*.example.com` (its subdomains), `*`; lower case. */
  names: string[];
  /** Headers to set on requests, by domain or `*.domain`; lower case. A value may hold `${e2b.secrets.NAME}`. */
  rules: Record<string, Record<string, string>>;
  /** SOCKS5 server that all TCP leaves through. */
  egressProxy?: SocksServer;
}

export interface SocksServer {
  host: string;
  port: number;
  username: string;
  password: string;
}

export const OPEN_POLICY: NetworkPolicy = { allow: [], deny: [], names: [], rules: {} };

/**
 * How TCP leaves a sandbox. `direct`: packets are routed, the fence looks at addresses. `named`: what no address rule opens goes to the
 * egress proxy, which looks for a name in it. `proxied`: everything goes to the egress proxy.
 */
export type Passage = 'direct' | 'named' | 'proxied';

/** A policy ready to be asked. */
export class CompiledPolicy {
  readonly source: NetworkPolicy;
  readonly allow: AddressSet;
  readonly deny: AddressSet;
  readonly passage: Passage;

  constructor(source: NetworkPolicy) {
    this.source = source;
    this.allow = new AddressSet(source.allow);
    this.deny = new AddressSet(source.deny);
    const proxied = Object.keys(source.rules).length > 0 || source.egressProxy !== undefined;
    this.passage = proxied ? 'proxied' : source.names.length > 0 ? 'named' : 'direct';
  }

  /** Whether nothing is closed and nothing goes another way: the fence needs no chain for such a sandbox. */
  get isOpen(): boolean {
    return this.passage === 'direct' && this.deny.isEmpty;
  }

  /** Whether names decide what may be reached, so that only those are answered by the resolver. */
  get isByName(): boolean {
    return this.source.names.length > 0;
  }

  permitsAddress(address: string): boolean {
    return this.allow.contains(address) || !this.deny.contains(address);
  }

  permitsName(name: string): boolean {
    return this.source.names.some((pattern) => matchesName(pattern, name));
  }

  /** Headers to set on requests to a name: the exact rule, else the longest wildcard; rules are not merged. */
  headersFor(name: string): Record<string, string> | undefined {
    const pattern = Object.keys(this.source.rules)
      .filter((candidate) => matchesName(candidate, name))
      .sort((a, b) => Number(a.startsWith('*')) - Number(b.startsWith('*')) || b.length - a.length)[0];
    return pattern === undefined ? undefined : this.source.rules[pattern];
  }
}

/** `*.example.com` is every name below example.com, at any depth, and not example.com itself. */
export function matchesName(pattern: string, name: string): boolean {
  if (pattern === '*') return true;
  return pattern.startsWith('*.')
    ? name.length > pattern.length - 1 && name.endsWith(pattern.slice(1))
    : name === pattern;
}

/** A name as rules are written: lower case, without the dot that ends a name in DNS. */
export function canonicalName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}
