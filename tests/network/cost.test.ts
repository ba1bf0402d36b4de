import { expect, it } from 'vitest';
import { times } from '../support/full.ts';
import { TestInternet } from '../support/internet.ts';
import { describeInWorlds, type Probed, refused } from './world.ts';

const { allowed, other } = TestInternet;
const MB = 1024 * 1024;

/** A thousand ranges that no test host is in. */
const thousand = Array.from({ length: 1000 }, (_, index) => `198.${20 + (index >> 8)}.${index & 255}.0/25`);

/** Best speed of some downloads, bytes a second: what else the machine does only makes it slower. */
async function speed(probed: Probed, url: string): Promise<number> {
  const speeds: number[] = [];
  for (let round = 0; round < times(3, 6); round++) {
    const { stdout } = await probed.run(`curl -sS -o /dev/null -w '%{speed_download}' '${url}'`);
    speeds.push(Number(stdout));
  }
  return Math.max(...speeds);
}

describeInWorlds('rules', (world, runtime) => {
  it('a thousand of them cost less than a tenth of the throughput', async () => {
    const size = times(60, 500) * MB;
    const url = `http://${allowed}/bytes?n=${size}`;
    const probed = await world().create();
    let best = 0;
    // Beside each other, so that a busy moment of the machine meets both.
    for (let attempt = 0; attempt < 4 && best < 0.9; attempt++) {
      await probed.sandbox.updateNetwork({});
      const open = await speed(probed, url);
      await probed.sandbox.updateNetwork({ denyOut: thousand });
      const ruled = await speed(probed, url);
      console.log(`${runtime}: ${mb(open)} MB/s without rules, ${mb(ruled)} MB/s with ${thousand.length}`);
      best = Math.max(best, ruled / open);
    }
    expect(best).toBeGreaterThan(0.9);
    await probed.sandbox.kill();
  });

  it('take effect on the next connection', async () => {
    const probed = await world().create();
    const changes: number[] = [];
    for (let round = 0; round < times(5, 25); round++) {
      const [closed, open] = round % 2 === 0 ? [allowed, other] : [other, allowed];
      const started = performance.now();
      await probed.sandbox.updateNetwork({ denyOut: [closed, ...thousand] });
      changes.push(performance.now() - started);
      const [first, second] = await probed.try([
        ['http', closed],
        ['http', open],
      ]);
      expect(first).toMatch(refused);
      expect(second).toMatchObject({ at: open });
    }
    const median = changes.sort((a, b) => a - b)[changes.length >> 1] ?? 0;
    console.log(`${runtime}: a change of ${thousand.length + 1} rules takes ${median.toFixed(0)} ms`);
    expect(median).toBeLessThan(1000);
    await probed.sandbox.kill();
  });
});

describeInWorlds(
  'limits',
  (world) => {
    it('bound the bandwidth of a sandbox both ways', async () => {
      const probed = await world().create();
      const size = times(15, 30) * MB;
      // 40 Mbit/s are 5 MB/s; what was not used for a second may come at once.
      const down = await speedOnce(
        probed,
        `curl -sS -o /dev/null -w '%{speed_download}' 'http://${allowed}/bytes?n=${size}'`,
      );
      expect(down).toBeLessThan(7 * MB);
      expect(down).toBeGreaterThan(MB);
      const up = await speedOnce(
        probed,
        `head -c ${size} /dev/zero | curl -sS -o /dev/null -w '%{speed_upload}' -T - -H Expect: http://${allowed}/sink`,
      );
      expect(up).toBeLessThan(7 * MB);
      expect(up).toBeGreaterThan(MB);
      await probed.sandbox.kill();
    });

    it('bound the connections of a sandbox, and of no other', async () => {
      const [probed, neighbour] = [await world().create(), await world().create()];
      const { stdout } = await probed.run(
        `python3 -c "
import socket, time
kept, refused = [], 0
for _ in range(120):
    s = socket.socket(); s.settimeout(2)
    try: s.connect(('${allowed}', 7)); kept.append(s)
    except OSError: refused += 1
print(len(kept), refused)"`,
      );
      const [kept = 0, gone = 0] = stdout.split(' ').map(Number);
      expect(kept).toBeGreaterThan(60);
      expect(kept).toBeLessThanOrEqual(80);
      expect(gone).toBe(120 - kept);
      expect(await neighbour.tryOne('http', allowed)).toMatchObject({ at: allowed });
      await probed.sandbox.kill();
      await neighbour.sandbox.kill();
    });
  },
  { SANDBAR_SANDBOX_MBIT: '40', SANDBAR_SANDBOX_CONNECTIONS: '80' },
);

async function speedOnce(probed: Probed, command: string): Promise<number> {
  return Number((await probed.run(command)).stdout);
}

function mb(bytes: number): string {
  return (bytes / MB).toFixed(0);
}
