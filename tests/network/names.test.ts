import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { TestInternet } from '../support/internet.ts';
import { describeInWorlds, type Echo, refused, ZONE } from './world.ts';

const { allowed, other, elsewhere } = TestInternet;
const everything = ['0.0.0.0/0'];

describeInWorlds('name rules', (world) => {
  it('open a name and nothing else, on any port, for HTTP and TLS', async () => {
    const probed = await world().create({ network: { allowOut: ['allowed.test'], denyOut: everything } });
    const results = await probed.try([
      ['http', 'allowed.test'],
      ['http', 'allowed.test', 8080],
      ['https', 'allowed.test', 443, 'allowed.test'],
      ['https', 'allowed.test', 8443, 'allowed.test'],
      ['http', allowed],
      ['https', allowed, 443, null],
      ['http', other, 80, 'other.test'],
      ['https', other, 443, 'other.test'],
      ['http', allowed, 80, 'sub.allowed.test'],
      ['tcp', allowed],
      ['connect', elsewhere, 22],
      ['udp', allowed],
      ['ping', allowed],
    ]);
    for (const [index, port] of [80, 8080, 443, 8443].entries())
      expect(results[index]).toMatchObject({ at: allowed, port });
    for (const result of results.slice(4, 10)) expect(result).toMatch(refused);
    for (const result of results.slice(11)) expect(result).toMatch(/^(failed|timeout)/);
    await probed.sandbox.kill();
  });

  it('of a wildcard open subdomains at any depth; an address beside them stays open', async () => {
    const network = { allowOut: ['*.allowed.test', other], denyOut: everything };
    const probed = await world().create({ network });
    await world().internet.setNames({ ...ZONE, 'a.b.allowed.test': [allowed] });
    const [sub, deep, apex, address, udp] = await probed.try([
      ['http', 'sub.allowed.test'],
      ['https', 'a.b.allowed.test', 443, 'a.b.allowed.test'],
      ['http', allowed, 80, 'allowed.test'],
      ['tcp', other],
      ['udp', other],
    ]);
    expect(sub).toMatchObject({ at: allowed });
    expect(deep).toMatchObject({ at: allowed });
    expect(apex).toMatch(refused);
    expect([address, udp]).toEqual(['open', 'open']);
    await probed.sandbox.kill();
  });

  it('dial the name themselves, whatever address the sandbox took for it', async () => {
    const probed = await world().create({ network: { allowOut: ['allowed.test'], denyOut: everything } });
    const [http, https] = await probed.try([
      ['http', other, 80, 'allowed.test'],
      ['https', elsewhere, 443, 'allowed.test'],
    ]);
    expect(http).toMatchObject({ at: allowed });
    expect(https).toMatchObject({ at: allowed });
    await probed.sandbox.kill();
  });

  it('let only their names be asked for', async () => {
    const { internet } = world();
    const probed = await world().create({ network: { allowOut: ['allowed.test'], denyOut: everything } });
    await internet.queries();
    const [known, unknown] = await probed.try([
      ['lookup', 'allowed.test'],
      ['lookup', 'secret-data.other.test'],
    ]);
    expect(known).toEqual([allowed]);
    expect(unknown).toMatch(/^no name/);
    const overTcp = await probed.run(
      `python3 -c "
import socket, struct
q = struct.pack('>HHHHHH', 1, 0x100, 1, 0, 0, 0) + b'\\\\x05other\\\\x04test\\\\0' + struct.pack('>HH', 1, 1)
s = socket.create_connection(('8.8.8.8', 53), 3)
s.sendall(struct.pack('>H', len(q)) + q)
print(s.recv(500)[5] & 15)"`,
    );
    expect(overTcp.stdout.trim()).toBe('5');
    const asked = await internet.queries();
    expect(new Set(asked)).toEqual(new Set(['allowed.test']));
    await probed.sandbox.kill();
  });

  it('do not lead to closed addresses, not even when a name changes its answer', async () => {
    const { internet } = world();
    await internet.setNames({ ...ZONE, 'rebinding.test': [[allowed], ['169.254.169.254']] });
    const names = ['metadata.test', 'private.test', 'loopback.test', 'machine.test', 'rebinding.test'];
    const probed = await world().create({ network: { allowOut: names, denyOut: everything } });
    const before = await internet.forbiddenPackets();
    // The sandbox asks first and is told the good address; the service asks second.
    const [looked, rebound, ...closed] = await probed.try([
      ['lookup', 'rebinding.test'],
      ['http', allowed, 80, 'rebinding.test'],
      ...names.slice(0, 4).map((name): [string, ...unknown[]] => ['http', allowed, 80, name]),
      ...names.slice(0, 4).map((name): [string, ...unknown[]] => ['https', allowed, 443, name]),
      ['http', 'metadata.test'],
    ]);
    expect(looked).toEqual([allowed]);
    for (const result of [rebound, ...closed]) expect(result).toMatch(refused);
    expect(await internet.forbiddenPackets()).toEqual(before);
    await probed.sandbox.kill();
  });

  it('are read from a TLS hello in any number of pieces', async () => {
    const probed = await world().create({ network: { allowOut: ['allowed.test'], denyOut: everything } });
    const [whole, split, hidden] = await probed.try([
      ['https', allowed, 443, 'allowed.test', 40],
      ['https', allowed, 443, 'allowed.test', 7],
      ['https', other, 443, 'other.test', 7],
    ]);
    expect(whole).toMatchObject({ at: allowed });
    expect(split).toMatchObject({ at: allowed });
    expect(hidden).toMatch(refused);
    await probed.sandbox.kill();
  });

  it('hold where a redirect leads', async () => {
    const probed = await world().create({ network: { allowOut: ['allowed.test'], denyOut: everything } });
    const to = (url: string) =>
      probed.run(`curl -sSL -m 5 'http://allowed.test/redirect?to=${encodeURIComponent(url)}'`);
    expect((await to('http://allowed.test/x')).stdout).toContain('"url":"/x"');
    for (const url of ['http://169.254.169.254/', 'http://other.test/', `http://${other}/`, 'http://10.99.99.99/'])
      expect((await to(url)).exitCode, url).not.toBe(0);
    await probed.sandbox.kill();
  });

  it('do not cut a connection that they allow for one before it, to the same address, that they do not', async () => {
    const probed = await world().create();
    expect(await probed.tryOne('http', allowed)).toMatchObject({ at: allowed });
    await probed.sandbox.updateNetwork({ allowOut: ['allowed.test'], denyOut: everything });
    const kept = await probed.sandbox.commands.run('curl -sN http://allowed.test/events; echo "exit $?"', {
      background: true,
    });
    // The kernel forgets the first one a second after the change.
    await sleep(2_000);
    const seen = kept.stdout.length;
    await expect.poll(() => kept.stdout.length).toBeGreaterThan(seen + 20);
    expect(kept.stdout).not.toContain('exit');
    await probed.sandbox.kill();
  });

  it('change at once, and connections they forbid are cut', async () => {
    const probed = await world().create({
      network: { allowOut: ['allowed.test', 'other.test'], denyOut: everything },
    });
    const watch = (name: string) =>
      probed.sandbox.commands.run(`curl -sN http://${name}/events; echo "exit $?"`, { background: true });
    const [cut, kept] = [await watch('other.test'), await watch('allowed.test')];
    await expect.poll(() => Math.min(cut.stdout.length, kept.stdout.length)).toBeGreaterThan(20);
    await probed.sandbox.updateNetwork({ allowOut: ['allowed.test'], denyOut: everything });
    await expect.poll(() => cut.stdout, { timeout: 5000 }).toMatch(/exit (56|18|52)/);
    expect(await probed.tryOne('http', other, 80, 'other.test')).toMatch(refused);
    const seen = kept.stdout.length;
    await expect.poll(() => kept.stdout.length).toBeGreaterThan(seen + 20);
    await probed.sandbox.updateNetwork({});
    expect(await probed.tryOne('http', other)).toMatchObject({ at: other });
    await kept.kill();
    await probed.sandbox.kill();
  });

  it('through the user’s own SOCKS5 server all TCP leaves, names found there', async () => {
    const { internet } = world();
    const egressProxy = { address: `${TestInternet.proxy}:1080`, username: 'user', password: 'pass' };
    const probed = await world().create({
      network: { allowOut: ['allowed.test', other], denyOut: everything, egressProxy },
    });
    await internet.proxied();
    const [byName, byAddress, closed] = await probed.try([
      ['https', 'allowed.test', 443, 'allowed.test'],
      ['tcp', other],
      ['http', elsewhere],
    ]);
    expect(byName).toMatchObject({ at: allowed });
    expect(byAddress).toBe('open');
    expect(closed).toMatch(refused);
    expect(await internet.proxied()).toEqual(['user@allowed.test:443', `user@${other}:7`]);
    expect((await probed.sandbox.getInfo()).network?.egressProxy).toEqual({
      address: `${TestInternet.proxy}:1080`,
      username: 'user',
    });
    // A server that does not let us in: nothing goes another way.
    await probed.sandbox.updateNetwork({ egressProxy: { ...egressProxy, password: 'wrong' } });
    expect(await probed.tryOne('http', allowed)).toMatch(refused);
    await probed.sandbox.updateNetwork({ egressProxy: { address: `${elsewhere}:9` } });
    expect(await probed.tryOne('http', allowed)).toMatch(refused);
    expect(await internet.proxied()).toEqual([]);
    await probed.sandbox.updateNetwork({});
    expect(await probed.tryOne<Echo>('http', allowed)).toMatchObject({ at: allowed, from: TestInternet.machine });
    await probed.sandbox.kill();
  });
});
