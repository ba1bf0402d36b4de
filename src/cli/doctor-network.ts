import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { runCommand } from '../core/command.ts';
import type { Config } from '../core/config.ts';
import { errnoOf, messageOf } from '../core/errors.ts';
import { randomHex } from '../core/ids.ts';
import { type Check, fail, ok, warn } from './doctor-check.ts';

export function networkChecks(config: Config): Check[] {
  return [
    {
      subject: 'namespaces',
      mend: 'install iproute2; in a container, run it privileged',
      look: () =>
        withScratchNamespace(async (namespace) => {
          await runCommand('ip', [
            '-n',
            namespace,
            'link',
            'add',
            'name',
            'veth-a',
            'type',
            'veth',
            'peer',
            'name',
            'veth-b',
          ]);
          return ok('network namespaces and veth pairs can be made');
        }),
    },
    {
      subject: 'nftables',
      mend: 'install nftables, and use a kernel that has nf_tables with NAT',
      look: () =>
        withScratchNamespace(async (namespace) => {
          // In a namespace of its own, so that the host's rules are never touched.
          await runCommand('ip', ['netns', 'exec', namespace, 'nft', '-f', '-'], { input: SCRATCH_RULES });
          return ok('rules with NAT, sets and connection tracking load');
        }),
    },
    {
      subject: 'forwarding',
      mend: 'mount /proc',
      async look() {
        const value = readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8').trim();
        if (value === '1') return ok('net.ipv4.ip_forward is 1');
        return ok(`net.ipv4.ip_forward is ${value}; the service sets it to 1 when it starts`);
      },
    },
    {
      subject: 'port',
      mend: 'choose another address or port (SANDBAR_HOST, SANDBAR_PORT)',
      async look() {
        const server = createServer();
        try {
          server.listen(config.port, config.host);
          await once(server, 'listening');
          return ok(`${config.host}:${config.port} is free`);
        } catch (error) {
          const where = `${config.host}:${config.port}`;
          if (errnoOf(error) === 'EADDRINUSE')
            return warn(`${where} is in use`, 'fine if that is Sandbar itself; else set SANDBAR_PORT');
          return fail(`${where}: ${messageOf(error)}`, 'choose another address or port (SANDBAR_HOST, SANDBAR_PORT)');
        } finally {
          server.close();
        }
      },
    },
  ];
}

const SCRATCH_RULES = `table inet sandbar_doctor {
  set refused { type ipv4_addr; flags interval; elements = { 169.254.0.0/16 } }
  chain forward { type filter hook forward priority 0; ct state established,related accept; ip daddr @refused drop; }
  chain out { type nat hook postrouting priority 100; oifname "veth-b" masquerade; }
}
`;

async function withScratchNamespace<T>(task: (namespace: string) => Promise<T>): Promise<T> {
  const namespace = `sandbar-doctor-${randomHex(4)}`;
  await runCommand('ip', ['netns', 'add', namespace], { timeoutMs: 10_000 });
  try {
    return await task(namespace);
  } finally {
    await runCommand('ip', ['netns', 'delete', namespace], { timeoutMs: 10_000 });
  }
}
