import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { Layout } from '../../src/node/layout.ts';
import { FULL } from '../support/full.ts';
import { TestInternet } from '../support/internet.ts';
import { countLeftovers, settledLeftovers } from '../support/leftovers.ts';
import { describeInWorlds, refused } from './world.ts';

const { allowed, elsewhere } = TestInternet;
const CRASHES = FULL ? 8 : 2;

/** Tries closed addresses without a pause, by TCP and UDP, and counts what it sent. */
const HAMMER = `
import socket, sys, time
closed = sys.argv[1].split(',')
sent = 0
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setblocking(False)
while True:
    for address in closed:
        tcp = socket.socket(); tcp.setblocking(False)
        for act in (lambda: udp.sendto(b'x', (address, 7)), lambda: tcp.connect((address, 80))):
            try: act()
            except OSError: pass
            sent += 1
        tcp.close()
    open('/tmp/sent', 'w').write(str(sent))
    time.sleep(0.001)
`;

describeInWorlds('kill -9 of the service', (world) => {
  it('does not open the fence for one packet, nor cut what is allowed', async () => {
    const { internet, service } = world();
    const probed = await world().create({ network: { denyOut: [elsewhere] } });
    const named = await world().create({ network: { allowOut: ['allowed.test'], denyOut: ['0.0.0.0/0'] } });
    const closed = [elsewhere, ...TestInternet.forbidden].join(',');
    for (const each of [probed, named]) {
      await each.sandbox.files.write('/tmp/hammer.py', HAMMER);
      await each.sandbox.commands.run(`nohup python3 /tmp/hammer.py ${closed} > /dev/null 2>&1 &`);
    }
    await probed.sandbox.commands.run(`nohup curl -sN http://${allowed}/events > /tmp/events 2>&1 &`);
    const sent = async () => Number((await probed.run('cat /tmp/sent')).stdout);
    const received = async () => Number((await probed.run('wc -c < /tmp/events')).stdout);
    await expect.poll(sent, { timeout: 10_000 }).toBeGreaterThan(100);
    const before = { sent: await sent(), received: await received() };

    for (let crash = 0; crash < CRASHES; crash++) {
      await service.kill9();
      await sleep(crash % 2 === 0 ? 300 : 0);
      await service.start();
    }
    await expect.poll(sent, { timeout: 10_000 }).toBeGreaterThan(before.sent + 100);
    expect(await internet.packetsElsewhere()).toEqual([]);
    expect(await internet.forbiddenPackets()).toEqual([]);
    // The connection of before is the same one still, and gets on.
    expect((await probed.run('pgrep -c curl')).stdout.trim()).toBe('1');
    await expect.poll(received).toBeGreaterThan(before.received + 100);
    expect(await named.tryOne('http', 'allowed.test')).toMatchObject({ at: allowed });
    expect(await named.tryOne('http', elsewhere)).toMatch(refused);
    await probed.sandbox.kill();
    await named.sandbox.kill();
  });

  it('leaves no rule, redirect or namespace of sandboxes that died meanwhile', async () => {
    const { service } = world();
    const empty = await settledLeftovers(service.stateDir);
    const [dying, living] = [
      await world().create({ network: { allowOut: ['allowed.test'], denyOut: ['0.0.0.0/0'] } }),
      await world().create({ network: { denyOut: [elsewhere] } }),
    ];
    expect((await chains(service.stateDir)).length).toBe(4);
    await service.kill9();
    process.kill(pidOf(service.stateDir, dying.id), 'SIGKILL');
    await service.start();
    expect((await chains(service.stateDir)).length).toBe(2);
    expect(await living.tryOne('http', allowed)).toMatchObject({ at: allowed });
    expect(await living.tryOne('http', elsewhere)).toMatch(refused);
    await living.sandbox.kill();
    await expect.poll(() => countLeftovers(service.stateDir), { timeout: 5000 }).toEqual(empty);
    expect(await chains(service.stateDir)).toEqual([]);
  });
});

/** Chains of single sandboxes, and the entries that lead to them. */
async function chains(stateDir: string): Promise<string[]> {
  const { scope } = new Layout(stateDir);
  const { stdout } = await runCommand('nft', ['list', 'table', 'inet', `sandbar_${scope}`]);
  const made = [...stdout.matchAll(/chain ((?:outgoing|diverted)_\d+)/g)].map((match) => match[1] ?? '');
  expect([...stdout.matchAll(/: goto /g)].length).toBe(made.length);
  return made;
}

function pidOf(stateDir: string, sandboxId: string): number {
  const record = readFileSync(path.join(new Layout(stateDir).sandboxDir(sandboxId), 'record.json'), 'utf8');
  return (JSON.parse(record) as { pid: number }).pid;
}
