import { Sandbox } from 'e2b';
import { expect, it } from 'vitest';
import { TestInternet } from '../support/internet.ts';
import { type Attempt, describeInWorlds, type Echo, refused, unreachable } from './world.ts';

const { allowed, other, elsewhere } = TestInternet;

describeInWorlds('address rules', (world) => {
  it('everything is open without rules, by every protocol', async () => {
    const probed = await world().create();
    const [http, tcp, udp, ping, names] = await probed.try([
      ['http', allowed],
      ['tcp', elsewhere],
      ['udp', allowed],
      ['ping', other],
      ['lookup', 'allowed.test'],
    ]);
    expect(http).toMatchObject({ at: allowed });
    expect([tcp, udp, ping]).toEqual(['open', 'open', 'open']);
    expect(names).toEqual([allowed]);
    await probed.sandbox.kill();
  });

  it('denied addresses are closed, the others open', async () => {
    const probed = await world().create({ network: { denyOut: ['198.51.100.16/28'] } });
    const [http, tcp, udp, ping, otherHttp, otherUdp, name] = await probed.try([
      ['http', allowed],
      ['tcp', allowed],
      ['udp', allowed],
      ['ping', allowed],
      ['http', elsewhere],
      ['udp', elsewhere],
      ['lookup', 'allowed.test'],
    ]);
    expect(http).toMatch(refused);
    expect(tcp).toMatch(refused);
    expect(udp).toMatch(unreachable);
    expect(ping).toMatch(unreachable);
    expect(otherHttp).toMatchObject({ at: elsewhere });
    expect(otherUdp).toBe('open');
    expect(name).toEqual([allowed]);
    await probed.sandbox.kill();
  });

  it('allowed addresses win over denied ones, for UDP and ICMP too', async () => {
    const probed = await world().create({ network: { allowOut: [allowed], denyOut: ['0.0.0.0/0'] } });
    const [http, udp, ping, otherHttp, otherUdp, otherPing, name] = await probed.try([
      ['http', allowed],
      ['udp', allowed],
      ['ping', allowed],
      ['http', other],
      ['udp', other],
      ['ping', other],
      ['lookup', 'allowed.test'],
    ]);
    expect(http).toMatchObject({ at: allowed });
    expect([udp, ping]).toEqual(['open', 'open']);
    expect(otherHttp).toMatch(refused);
    expect(otherUdp).toMatch(unreachable);
    expect(otherPing).toMatch(unreachable);
    // The name server's address is not open either.
    expect(name).toMatch(/^no name/);
    await probed.sandbox.kill();
  });

  it('without internet access nothing is open but what is allowed', async () => {
    const closed = await world().create({ allowInternetAccess: false });
    const attempts: Attempt[] = [
      ['http', allowed],
      ['udp', allowed],
      ['ping', allowed],
      ['lookup', 'allowed.test'],
    ];
    for (const result of await closed.try(attempts)) expect(result).toMatch(/^(failed|timeout|no name)/);
    expect(await closed.sandbox.getInfo()).toMatchObject({ allowInternetAccess: false });
    await closed.sandbox.kill();
    const partly = await world().create({ allowInternetAccess: false, network: { allowOut: [`${other}/32`] } });
    expect(await partly.tryOne('http', other)).toMatchObject({ at: other });
    expect(await partly.tryOne('http', allowed)).toMatch(refused);
    await partly.sandbox.kill();
  });

  it('a change is in force for the next connection, and cuts what it forbids, at both ends', async () => {
    const probed = await world().create();
    const watcher = await probed.sandbox.commands.run(`curl -sN http://${allowed}/events; echo "exit $?"`, {
      background: true,
    });
    const kept = await probed.sandbox.commands.run(`curl -sN http://${other}/events`, { background: true });
    await expect.poll(() => watcher.stdout.length).toBeGreaterThan(20);
    await expect.poll(() => kept.stdout.length).toBeGreaterThan(20);
    await probed.sandbox.updateNetwork({ denyOut: [allowed] });
    expect(await probed.tryOne('http', allowed)).toMatch(refused);
    await expect.poll(() => watcher.stdout, { timeout: 5000 }).toMatch(/exit (56|18|52)/);
    const seen = kept.stdout.length;
    await expect.poll(() => kept.stdout.length).toBeGreaterThan(seen + 20);
    await probed.sandbox.updateNetwork({});
    expect(await probed.tryOne('http', allowed)).toMatchObject({ at: allowed });
    await kept.kill();
    await probed.sandbox.kill();
  });

  it('stays with the sandbox through pause, resume and fork', async () => {
    const { service } = world();
    const probed = await world().create({ network: { denyOut: [allowed] } });
    await probed.sandbox.updateNetwork({ denyOut: [other] });
    const holds = async (sandbox: Sandbox) => {
      const { stdout } = await sandbox.commands.run(
        `python3 /home/user/probe.py '${JSON.stringify([
          ['http', allowed],
          ['http', other],
        ])}'`,
      );
      const [open, closed] = JSON.parse(stdout) as [Echo, string];
      expect(open).toMatchObject({ at: allowed });
      expect(closed).toMatch(refused);
      const { network } = await sandbox.getInfo();
      expect(network).toEqual({ denyOut: [other] });
    };
    await holds(probed.sandbox);
    await probed.sandbox.pause();
    await Sandbox.connect(probed.id, service.connection);
    await holds(probed.sandbox);
    await probed.sandbox.pause({ keepMemory: false });
    await Sandbox.connect(probed.id, service.connection);
    await holds(probed.sandbox);
    const [fork] = await probed.sandbox.fork();
    if (!(fork instanceof Sandbox)) throw new Error(`not forked: ${JSON.stringify(fork)}`);
    await holds(fork);
    // Each has rules of its own.
    await probed.sandbox.updateNetwork({});
    expect(await probed.tryOne('http', other)).toMatchObject({ at: other });
    await holds(fork);
    await fork.kill();
    await probed.sandbox.kill();
  });

  it('stays in force over a restart of the service', async () => {
    const probed = await world().create({ network: { allowOut: [other], denyOut: ['0.0.0.0/0'] } });
    await world().service.restart();
    expect(await probed.tryOne('http', other)).toMatchObject({ at: other });
    expect(await probed.tryOne('http', allowed)).toMatch(refused);
    await probed.sandbox.updateNetwork({ denyOut: [other] });
    expect(await probed.tryOne('http', allowed)).toMatchObject({ at: allowed });
    expect(await probed.tryOne('http', other)).toMatch(refused);
    await probed.sandbox.kill();
  });

  it('tells of denied connections in the log of the sandbox', async () => {
    const probed = await world().create({ network: { denyOut: [other] } });
    await probed.try([
      ['http', other],
      ['udp', other, 4242],
      ['ping', other],
      ['http', '10.99.99.99'],
    ]);
    const messages = async () => {
      const answer = await world().service.fetch(`/v2/sandboxes/${probed.id}/logs`);
      return ((await answer.json()) as { logs: { message: string }[] }).logs.map((line) => line.message);
    };
    await expect
      .poll(messages, { timeout: 10_000 })
      .toEqual(
        expect.arrayContaining([
          `connection denied: tcp ${other}:80`,
          `connection denied: udp ${other}:4242`,
          `connection denied: icmp ${other}`,
          'connection denied: tcp 10.99.99.99:80',
        ]),
      );
    await probed.sandbox.kill();
  });

  it('a paused or unknown sandbox is not changed', async () => {
    const probed = await world().create();
    await probed.sandbox.pause();
    await expect(probed.sandbox.updateNetwork({})).rejects.toThrow(/not found/i);
    await probed.sandbox.kill();
    await expect(probed.sandbox.updateNetwork({})).rejects.toThrow(/not found/i);
  });
});
