import { networkInterfaces } from 'node:os';
import type { SandboxOpts } from 'e2b';
import { describe, expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { type Attempt, describeInWorlds, type Probed } from '../network/world.ts';
import { TestInternet } from '../support/internet.ts';

const { allowed, forbidden } = TestInternet;
const everything = ['0.0.0.0/0'];

/** Rules under which the closed addresses are tried, those that ask for them by name included. */
const policies: Record<string, NonNullable<SandboxOpts['network']>> = {
  'no rules': {},
  'rules that allow them': {
    allowOut: ['0.0.0.0/0', '10.0.0.0/8', '169.254.0.0/16', ...forbidden],
    denyOut: ['198.51.100.192/26'],
  },
  'every name allowed': { allowOut: ['*', ...forbidden], denyOut: everything },
  'header rules': { rules: { '*.test': [{ transform: { headers: { 'X-Key': 'abc' } } }] } },
  'an egress proxy': { egressProxy: { address: `${TestInternet.proxy}:1080`, username: 'user', password: 'pass' } },
};

/** Nothing of value came back. */
const nothing = /^(failed|timeout|no name|flags |sent|not permitted|.*HTTP\/1.1 (421|502))/;

describeInWorlds('a hostile sandbox', (world, runtime) => {
  describe.each(Object.entries(policies))('with %s', (_name, network) => {
    it('reaches no closed address by any protocol', async () => {
      const { internet } = world();
      const probed = await world().create({ network });
      const before = await internet.forbiddenPackets();
      const attempts = forbidden.flatMap((address): Attempt[] => [
        ['http', address],
        ['http', address, 80, 'allowed.test'],
        ['https', address, 443, 'allowed.test', 9],
        ['connect6', `::ffff:${address}`, 80],
        ['udp', address],
        ['ping', address],
      ]);
      const names = ['metadata.test', 'private.test', 'loopback.test', 'machine.test'];
      const byName = names.flatMap((name): Attempt[] => [
        ['http', name],
        ['http', allowed, 80, name],
        ['https', allowed, 443, name],
      ]);
      // Header rules and every name: where the address dialled is open, it is reached, and no closed one.
      for (const [index, result] of (await probed.try([...attempts, ...byName])).entries()) {
        const attempt = [...attempts, ...byName][index];
        const harmless = typeof result === 'object' && result !== null && 'at' in result && result.at === allowed;
        if (!harmless) expect(result, JSON.stringify(attempt)).toMatch(nothing);
      }
      expect(await internet.forbiddenPackets()).toEqual(before);
      await probed.sandbox.kill();
    });
  });

  it('gets nothing out by raw packets, or from addresses that are not its own', async () => {
    const { internet } = world();
    const [probed, victim] = [await world().create(), await world().create()];
    const [own, sibling] = [await addressOf(probed), await addressOf(victim)];
    const before = await internet.forbiddenPackets();
    await internet.datagrams();
    const spoofed = [sibling, hostEnd(own), TestInternet.machine, TestInternet.other, '127.0.0.1', '10.1.2.3'];
    const results = await probed.try(
      [
        ...forbidden.map((address): Attempt => ['raw_syn', address, 80]),
        ...forbidden.map((address): Attempt => ['raw_udp', address, 7, own]),
        ...spoofed.map((source): Attempt => ['raw_udp', allowed, 7, source]),
        ...spoofed.map((source): Attempt => ['raw_syn', allowed, 80, source]),
        ['raw_udp', allowed, 7, own, 'own'],
      ],
      'root',
    );
    for (const result of results) expect(result).toMatch(nothing);
    // What is its own, and only that, arrives.
    expect(await probed.tryOne('udp', allowed)).toBe('open');
    const arrived = await internet.datagrams();
    expect(new Set(arrived.filter((line) => line.includes('spoofed')))).toEqual(new Set());
    expect(arrived).toContain(`${TestInternet.machine} ping`);
    expect(await internet.forbiddenPackets()).toEqual(before);
    await probed.sandbox.kill();
    await victim.sandbox.kill();
  });

  it('does not reach another sandbox', async () => {
    const [probed, victim] = [await world().create(), await world().create()];
    await victim.sandbox.commands.run('python3 -m http.server 8000', { background: true });
    const sibling = await addressOf(victim);
    await expect.poll(() => victim.tryOne('scan', '127.0.0.1', [8000])).toEqual([8000]);
    const results = await probed.try(
      [
        ['scan', sibling, [8000, 49981, 49983, 22]],
        ['scan', hostEnd(sibling), [8000, 49981, 49983, 22]],
        ['udp', sibling, 53000],
        ['ping', sibling],
        ['ping', hostEnd(sibling)],
        ['raw_syn', sibling, 8000],
        ['raw_syn', sibling, 8000, hostEnd(sibling)],
      ],
      'root',
    );
    expect(results.slice(0, 2)).toEqual([[], []]);
    for (const result of results.slice(2)) expect(result).toMatch(nothing);
    await probed.sandbox.kill();
    await victim.sandbox.kill();
  });

  it('finds no open port of the machine, on any of its addresses', async () => {
    const probed = await world().create();
    const own = await addressOf(probed);
    const { stdout } = await runCommand('ss', ['-Hltn']);
    const ports = [...new Set([...stdout.matchAll(/:(\d+)\s+\S+:\*/g)].map((match) => Number(match[1])))];
    expect(ports).toContain(world().service.port);
    const addresses = Object.values(networkInterfaces())
      .flatMap((all) => all ?? [])
      .filter(
        ({ family, internal, address }) => family === 'IPv4' && !internal && !/^10\.(19[2-9]|2\d\d)\./.test(address),
      )
      .map(({ address }) => address);
    const results = await probed.try([hostEnd(own), ...addresses].map((address): Attempt => ['scan', address, ports]));
    for (const open of results) expect(open).toEqual([]);
    expect(await probed.tryOne('ping', hostEnd(own))).toMatch(nothing);
    await probed.sandbox.kill();
  });

  it('gains nothing from ARP, frames of its own, or another address', async () => {
    const { internet } = world();
    const [probed, victim] = [await world().create(), await world().create()];
    const [own, sibling] = [await addressOf(probed), await addressOf(victim)];
    const before = await internet.forbiddenPackets();
    const mac = await probed.tryOne<string>('own_mac');
    const packet = `4500001c000100004011${'0000'}${hex(own)}${hex('169.254.169.254')}9c40000700080000`;
    await probed.try(
      [
        // Claims to be others, and asks for addresses of the machine.
        ['arp', sibling, sibling, true],
        ['arp', hostEnd(own), TestInternet.allowed, true],
        ['arp', hostEnd(own), hostEnd(own), true],
        ['arp', TestInternet.machine],
        // The packet in a VLAN, in IPv6's clothes, to everybody.
        ['frame', `ffffffffffff${mac}81000001${'0800'}${packet}`],
        [
          'frame',
          `ffffffffffff${mac}86dd6000000000103afffe80000000000000000000000000000${'1'}ff0200000000000000000000000000018000000000000000`,
        ],
        ['frame', `ffffffffffff${mac}0800${packet}`],
      ],
      'root',
    );
    // Takes its neighbour's address, as far as it can.
    await probed.run(`sudo ip addr add ${sibling}/30 dev eth0; sudo ip route replace 169.254.0.0/16 dev eth0; true`);
    expect(await probed.tryOne('http', '169.254.169.254')).toMatch(nothing);
    expect(await internet.forbiddenPackets()).toEqual(before);
    expect(await victim.tryOne('http', allowed)).toMatchObject({ at: allowed });
    expect((await victim.run('echo still here')).stdout).toBe('still here\n');
    await victim.sandbox.kill();
    await probed.sandbox.kill();
  });

  it('has no way out by IPv6', async () => {
    const probed = await world().create();
    const machine = Object.values(networkInterfaces())
      .flatMap((all) => all ?? [])
      .filter(({ family, internal }) => family === 'IPv6' && !internal)
      .map(({ address }) => address);
    const targets = [...machine, 'fe80::1', 'ff02::1', '2001:db8::1', `::ffff:${TestInternet.machine}`];
    for (const result of await probed.try(
      targets.map((address): Attempt => ['connect6', address, world().service.port]),
    ))
      expect(result).toMatch(nothing);
    // What is IPv4 in truth is judged as IPv4.
    expect(await probed.tryOne('connect6', `::ffff:${allowed}`, 80)).toMatch(/^HTTP\/1.1 /);
    await probed.sandbox.updateNetwork({ denyOut: [allowed] });
    expect(await probed.tryOne('connect6', `::ffff:${allowed}`, 80)).toMatch(nothing);
    await probed.sandbox.kill();
  });

  it(`keeps its hands off the fence (${runtime})`, async () => {
    const probed = await world().create({ network: { denyOut: [allowed] } });
    const { stdout } = await probed.run(
      'sudo sh -c "nft flush ruleset; iptables -F; ip link set eth0 down; ip link set eth0 up; sysctl -w net.ipv4.ip_forward=1" 2>&1; echo done',
    );
    expect(stdout).toContain('done');
    expect(await probed.tryOne('http', allowed)).toMatch(nothing);
    await probed.sandbox.kill();
  });
});

async function addressOf(probed: Probed): Promise<string> {
  return probed.tryOne<string>('own_address');
}

/** The machine's end of the link that an address is on: the one before it. */
function hostEnd(address: string): string {
  const octets = address.split('.').map(Number);
  return [...octets.slice(0, 3), (octets[3] ?? 0) - 1].join('.');
}

function hex(address: string): string {
  return address
    .split('.')
    .map((octet) => Number(octet).toString(16).padStart(2, '0'))
    .join('');
}
