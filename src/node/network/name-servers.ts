import { readFileSync } from 'node:fs';

export interface NameServer {
  address: string;
  port: number;
}

const FALLBACK = ['8.8.8.8', '1.1.1.1'];
const DNS_PORT = 53;

/**
 * The servers that names are asked of: those the operator gave (`address` or `address:port`), else the machine's own, read each time since
 * they change when a laptop changes networks.
 */
export function nameServers(given: readonly string[] = []): NameServer[] {
  return (given.length > 0 ? given : ownServers()).map((text) => {
    const [address = '', port] = text.split(':');
    return { address, port: port === undefined ? DNS_PORT : Number(port) };
  });
}

function ownServers(): string[] {
  for (const file of ['/run/systemd/resolve/resolv.conf', '/etc/resolv.conf']) {
    try {
      const found = [...readFileSync(file, 'utf8').matchAll(/^nameserver\s+(\d+\.\d+\.\d+\.\d+)\s*$/gm)].map(
        (match) => match[1] ?? '',
      );
      if (found.length > 0) return found;
    } catch {
      // The next file.
    }
  }
  return FALLBACK;
}
