import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import { SandbarError } from '../core/errors.ts';
import type { EgressProxy, NetworkConfig, NetworkRule } from '../sandboxes/network-config.ts';

// The rules of the protocol for a sandbox's network object. Each function throws `invalid` with the reason.

/** Every IPv4 address: what the SDKs call ALL_TRAFFIC. */
export const ALL_TRAFFIC = '0.0.0.0/0';

const ENVD_PORT = 49983;
const limits = { ruleDomains: 10, transforms: 1, headers: 20, headerName: 64, headerValue: 2048, domain: 128 };
const CREDENTIAL_BYTES = 255;

/** The configuration checked, with domains in lower case. `internetDenied` is `allow_internet_access: false`. */
export function checkNetwork(network: NetworkConfig, internetDenied: boolean): NetworkConfig {
  const checked = { ...network };
  for (const entry of network.denyOut ?? []) checkDenied(entry);
  if (network.allowOut !== undefined) {
    checked.allowOut = network.allowOut.map(checkAllowed);
    const everythingDenied = internetDenied || (network.denyOut ?? []).includes(ALL_TRAFFIC);
    if (checked.allowOut.some(isDomainRule) && !everythingDenied)
      throw refuse(
        "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.",
      );
  }
  if (network.egressProxy !== undefined && network.egressProxy !== null) checkEgressProxy(network.egressProxy);
  if (network.rules !== undefined) checked.rules = checkRules(network.rules);
  if (network.maskRequestHost !== undefined) checkMaskRequestHost(network.maskRequestHost);
  for (const port of network.httpsPorts ?? []) checkHttpsPort(port);
  return checked;
}

function checkDenied(entry: string): void {
  if (!isAddressRange(entry)) throw refuse(`invalid denied CIDR ${entry}`);
}

function checkAllowed(entry: string): string {
  if (isAddressRange(entry)) return entry;
  if (looksLikeAddress(entry) || !isDomainRule(entry))
    throw refuse(`invalid allowed entry ${entry}: neither an address, a CIDR nor a domain`);
  return entry.toLowerCase();
}

/** An address or a CIDR. The unspecified address means nothing but in `/0`. */
function isAddressRange(entry: string): boolean {
  const [address = '', prefix, ...more] = entry.split('/');
  const family = isIP(address);
  if (family === 0 || address.includes('%') || more.length > 0) return false;
  const unspecified = address === '0.0.0.0' || /^[0:]+$/.test(address);
  if (prefix === undefined) return !unspecified;
  if (!/^\d{1,3}$/.test(prefix) || Number(prefix) > (family === 4 ? 32 : 128)) return false;
  return !unspecified || Number(prefix) === 0;
}

function looksLikeAddress(entry: string): boolean {
  return /^[\d./]+$/.test(entry) || entry.includes(':');
}

/** A domain, `*.domain` or `*`. */
function isDomainRule(entry: string): boolean {
  return entry === '*' || isDomain(entry.startsWith('*.') ? entry.slice(2) : entry);
}

const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/i;

function isDomain(text: string): boolean {
  const labels = text.split('.');
  if (text.length > 253 || /^\d+$/.test(labels.at(-1) ?? '')) return false;
  return labels.every((label) => LABEL.test(label));
}

/** Addresses no sandbox may reach, not even through a proxy. */
const internal = new BlockList();
for (const [address, prefix] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
] as const)
  internal.addSubnet(address, prefix, 'ipv4');
for (const [address, prefix] of [
  ['::', 127],
  ['fc00::', 7],
  ['fe80::', 10],
] as const)
  internal.addSubnet(address, prefix, 'ipv6');

function checkEgressProxy({ address, username, password }: EgressProxy): void {
  const bad = (why: string) => refuse(`Invalid egress proxy config: ${why}`);
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(address) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined) throw bad('address must be host:port');
  const port = Number(digits);
  if (port < 1 || port > 65535) throw bad(`port ${digits} is not between 1 and 65535`);
  if (bracketed !== undefined ? !isIPv6(host) : !isIPv4(host) && !isDomain(host)) throw bad(`invalid host ${host}`);
  const family = isIP(host);
  const isInternal =
    family === 0 ? /(^|\.)localhost$/i.test(host) : internal.check(host, family === 4 ? 'ipv4' : 'ipv6');
  if (isInternal) throw bad(`host ${host} is private or loopback`);
  if (password !== undefined && !username) throw bad('a password needs a username');
  for (const [name, value] of Object.entries({ username, password })) {
    if (Buffer.byteLength(value ?? '') > CREDENTIAL_BYTES)
      throw bad(`${name} is longer than ${CREDENTIAL_BYTES} bytes`);
  }
}

function checkRules(rules: Record<string, NetworkRule[]>): Record<string, NetworkRule[]> {
  const entries = Object.entries(rules).map(([domain, list]): [string, NetworkRule[]] => [domain.toLowerCase(), list]);
  if (entries.length > limits.ruleDomains) throw refuse(`rules may name at most ${limits.ruleDomains} domains`);
  if (new Set(entries.map(([domain]) => domain)).size < entries.length) throw refuse('rules name a domain twice');
  for (const [domain, list] of entries) {
    const name = domain.startsWith('*.') ? domain.slice(2) : domain;
    if (domain.length > limits.domain || !isDomain(name)) throw refuse(`invalid domain ${domain} in rules`);
    if (list.length > limits.transforms) throw refuse(`rules for ${domain} may have at most one transform`);
    for (const { transform } of list) checkHeaders(domain, transform?.headers ?? {});
  }
  return Object.fromEntries(entries);
}

function checkHeaders(domain: string, headers: Record<string, string>): void {
  const entries = Object.entries(headers);
  if (entries.length > limits.headers) throw refuse(`rules for ${domain} may set at most ${limits.headers} headers`);
  for (const [name, value] of entries) {
    if (name.length > limits.headerName || !/^[!#$%&'*+.^_`|~0-9a-z-]+$/i.test(name))
      throw refuse(`invalid header name ${JSON.stringify(name)} in rules for ${domain}`);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
    if (value.length > limits.headerValue || /[\u0000-\u0008\u000a-\u001f\u007f]/.test(value))
      throw refuse(`invalid value of header ${name} in rules for ${domain}`);
  }
}

/** A host, which may carry a port or the placeholder `${PORT}`. */
function checkMaskRequestHost(host: string): void {
  if (host.length > 255 || !/^[a-z0-9._-]+(:(\d{1,5}|\$\{PORT\}))?$/i.test(host.replace(/^\$\{PORT\}-/, 'p-')))
    throw refuse(`invalid maskRequestHost ${host}`);
}

function checkHttpsPort(port: number): void {
  if (port < 1 || port > 65535) throw refuse(`invalid port ${port} in httpsPorts`);
  if (port === ENVD_PORT) throw refuse(`port ${ENVD_PORT} is not allowed in httpsPorts`);
}

function refuse(why: string): SandbarError {
  return new SandbarError('invalid', why);
}
