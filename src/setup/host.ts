import { readFileSync } from 'node:fs';

/** What set-up has to know of the machine. */
export interface Host {
  /** `debian`, `ubuntu`, … */
  distribution: string;
  /** `12`, `24.04`, … */
  version: string;
  /** `bookworm`, `noble`, … */
  codename: string;
  /** As the OS calls itself, for people. */
  prettyName: string;
  arch: 'x86_64' | 'aarch64';
}

export const SUPPORTED_SYSTEMS = ['Debian 12', 'Debian 13', 'Ubuntu 22.04', 'Ubuntu 24.04'];

export function readHost(): Host {
  const release = parseOsRelease(readFileSync('/etc/os-release', 'utf8'));
  return {
    distribution: release['ID'] ?? 'unknown',
    version: release['VERSION_ID'] ?? '',
    codename: release['VERSION_CODENAME'] ?? '',
    prettyName: release['PRETTY_NAME'] ?? 'Linux',
    arch: process.arch === 'arm64' ? 'aarch64' : 'x86_64',
  };
}

export function isSupported(host: Host): boolean {
  const name = `${host.distribution} ${host.version}`.toLowerCase();
  return SUPPORTED_SYSTEMS.some((system) => system.toLowerCase() === name);
}

/** The `KEY=value` lines of os-release(5). */
export function parseOsRelease(text: string): Record<string, string> {
  const values: Record<string, string> = {};
  for (const line of text.split('\n')) {
    const match = /^([A-Z_]+)=(?:"(.*)"|'(.*)'|(.*))$/.exec(line.trim());
    if (match?.[1] !== undefined) values[match[1]] = match[2] ?? match[3] ?? match[4] ?? '';
  }
  return values;
}
