import { statfsSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { type Attempt, describeInWorlds, type Echo, type Probed, refused, unreachable } from '../network/world.ts';
import { TestInternet } from '../support/internet.ts';

const AGENT_PORT = 49981;
const DISK_MB = 512;
const MIB = 1024 * 1024;
/** A source that is nobody's (RFC 5737). */
const SPOOFED = '198.51.100.177';

/** Whoever is inside has root there and means harm. */
describeInWorlds(
  'a hostile sandbox',
  (world, runtime) => {
    let attacker: Probed;
    let neighbour: Probed;

    beforeAll(async () => {
      [attacker, neighbour] = await Promise.all([world().create(), world().create()]);
    });

    const addressOf = async (probed: Probed) =>
      (await probed.run("hostname -I | tr ' ' '\\n' | grep -m 1 .")).stdout.trim();

    describe('network', () => {
      /** Every attempt as root; none may be answered. */
      async function allRefused(attempts: Attempt[]): Promise<void> {
        const results = await attacker.try(attempts, 'root');
        for (const [index, result] of results.entries())
          expect(String(result), JSON.stringify(attempts[index])).toMatch(
            attempts[index]?.[0] === 'connect' || attempts[index]?.[0] === 'http' ? refused : unreachable,
          );
      }

      it('reaches the world outside, or the rest would prove nothing', async () => {
        expect(await attacker.tryOne<Echo>('http', TestInternet.allowed)).toMatchObject({ at: TestInternet.allowed });
      });

      it('does not reach metadata services and private networks, by any protocol', async () => {
        const before = await world().internet.forbiddenPackets();
        const attempts = TestInternet.forbidden.flatMap((address): Attempt[] => [
          ['http', address],
          ['connect', address, 443],
          ['udp', address],
          ['ping', address],
        ]);
        await allRefused(attempts);
        expect(await world().internet.forbiddenPackets()).toEqual(before);
      });

      it('does not reach them by raw packets either', async () => {
        const before = await world().internet.forbiddenPackets();
        const results = await attacker.try(
          TestInternet.forbidden.flatMap((address): Attempt[] => [
            ['raw_syn', address, 80],
            ['raw_udp', address, 53, SPOOFED],
          ]),
          'root',
        );
        for (const result of results) expect(result).not.toBe('open');
        expect(await world().internet.forbiddenPackets()).toEqual(before);
      });

      it('does not reach this machine, under any of its addresses', async () => {
        const listener: Server = createServer((_req, res) => res.end('a hole'));
        await new Promise<void>((resolve) => listener.listen(0, '0.0.0.0', resolve));
        const port = (listener.address() as AddressInfo).port;
        try {
          const own = Object.values(networkInterfaces())
            .flatMap((list) => list ?? [])
            .filter(({ family }) => family === 'IPv4')
            .map(({ address }) => address)
            .filter((address) => !address.startsWith('127.'));
          const gateway = (await attacker.run("ip route 2>/dev/null | awk '/default/ {print $3}'")).stdout.trim();
          const addresses = new Set([...own, ...(gateway ? [gateway] : []), TestInternet.machine]);
          expect(addresses.size).toBeGreaterThan(1);
          await allRefused(
            [...addresses].flatMap((address): Attempt[] => [
              ['connect', address, port],
              ['connect', address, world().service.port],
              ['connect', address, 22],
            ]),
          );
          // Inside, loopback is the sandbox's own.
          await allRefused([
            ['connect', '127.0.0.1', port],
            ['connect', '127.0.0.1', world().service.port],
          ]);
        } finally {
          listener.close();
        }
      });

      it('does not reach another sandbox, its programs or its agent', async () => {
        const address = await addressOf(neighbour);
        expect(address).toMatch(/^\d+\.\d+\.\d+\.\d+$/);
        const server = await neighbour.sandbox.commands.run('exec python3 -m http.server 8080', { background: true });
        await expect.poll(() => neighbour.tryOne('connect', '127.0.0.1', 8080), { timeout: 15_000 }).toBe('open');
        await allRefused([
          ['connect', address, 8080],
          ['connect', address, AGENT_PORT],
          ['connect', address, 49983],
          ['udp', address, 9],
          ['ping', address],
        ]);
        await server.kill();
      });

      it('cannot pretend to be somebody else', async () => {
        const [victim, own] = [await addressOf(neighbour), await addressOf(attacker)];
        const spoofed = await PacketCounter.start('spoofed', [SPOOFED, victim], TestInternet.other);
        const honest = await PacketCounter.start('honest', [own], TestInternet.other);
        try {
          const [echo] = await attacker.try(
            [
              ['http', TestInternet.other],
              ['raw_udp', TestInternet.other, 7, SPOOFED],
              ['raw_udp', TestInternet.other, 7, victim],
              ['raw_syn', TestInternet.other, 80, SPOOFED],
              ['raw_syn', TestInternet.other, 80, victim],
            ],
            'root',
          );
          expect(echo).toMatchObject({ at: TestInternet.other });
          await sleep(300);
          expect(await honest.packets()).toBeGreaterThan(0);
          expect(await spoofed.packets()).toBe(0);
        } finally {
          await spoofed.stop();
          await honest.stop();
        }
      });

      it('cannot talk to its own agent without the secret, nor find the secret', async () => {
        const { stdout } = await attacker.sandbox.commands.run(
          `python3 - <<'END'
import socket
for host in ['127.0.0.1', '${await addressOf(attacker)}']:
    for hello in [b'', b'SBA1' + bytes(32), b'SBA1' + b'A' * 400, b'GET / HTTP/1.0\\r\\n\\r\\n', bytes(range(256)) * 20]:
        try:
            with socket.create_connection((host, ${AGENT_PORT}), 2) as s:
                s.settimeout(7)
                s.sendall(hello + b'x' * 100)
                print(len(s.recv(100)) > 1)
        except OSError:
            print(False)
END`,
          { user: 'root', timeoutMs: 120_000 },
        );
        // One byte, a refusal, is all that it ever says.
        expect(new Set(stdout.trim().split('\n'))).toEqual(new Set(['False']));
        const environment = await attacker.sandbox.commands.run(
          "tr '\\0' '\\n' < /proc/1/environ 2>/dev/null | grep -ci secret || true; tr '\\0' ' ' < /proc/1/cmdline | grep -ci secret || true",
          { user: 'root' },
        );
        expect(environment.stdout).toBe('0\n0\n');
        expect((await attacker.run('echo still here')).stdout).toBe('still here\n');
      });
    });

    describe('resources', () => {
      /** Why a sandbox is gone; nothing while it is there. */
      async function endOf(probed: Probed): Promise<string> {
        if ((await world().service.fetch(`/sandboxes/${probed.id}`)).status !== 404) return '';
        const answer = await world().service.fetch(`/v2/sandboxes/${probed.id}/logs`);
        const { logs } = (await answer.json()) as { logs: { message: string; fields: Record<string, string> }[] };
        return logs.map(({ message, fields }) => `${message} ${JSON.stringify(fields)}`).join(' ');
      }

      /** How long the neighbour took to answer, at worst, while something went on. */
      async function neighbourDuring(work: () => Promise<unknown>): Promise<number> {
        let worst = 0;
        let going = true;
        const asking = (async () => {
          while (going) {
            const begun = Date.now();
            expect((await neighbour.run('echo neighbour')).stdout).toBe('neighbour\n');
            worst = Math.max(worst, Date.now() - begun);
            await sleep(100);
          }
        })();
        asking.catch(() => undefined);
        try {
          await work();
        } finally {
          going = false;
          await asking;
        }
        return worst;
      }
      const attackerAnswers = () =>
        expect
          .poll(() => attacker.run('echo alive').then(({ stdout }) => stdout, String), {
            timeout: 60_000,
            interval: 500,
          })
          .toBe('alive\n');
      const PATIENT_MS = 15_000;

      it.each(['user', 'root'])('a fork bomb of %s hits its own limit', { timeout: 300_000 }, async (user) => {
        const bombed = await world().create();
        const worst = await neighbourDuring(async () => {
          await bombed.sandbox.commands
            .run('bomb() { bomb | bomb & }; bomb; sleep 20', { user, timeoutMs: 6000 })
            .catch(() => undefined);
          // It goes on; or, where the sandbox's own kernel has drowned in root's processes, it has ended and says why.
          const outcome = async () => {
            if ((await bombed.run('echo alive').catch(() => undefined))?.stdout === 'alive\n') return 'goes on';
            return endOf(bombed);
          };
          const expected = runtime === 'gvisor' ? /^(goes on|.*(process limit|memory).*)$/ : /^goes on$/;
          await expect.poll(outcome, { timeout: 150_000, interval: 1000 }).toMatch(expected);
          if (user === 'user') expect(await outcome()).toBe('goes on');
        });
        expect(worst).toBeLessThan(PATIENT_MS);
        // Once it is over, nobody is killed for it any more.
        if ((await bombed.sandbox.isRunning()) === true)
          for (let round = 0; round < 20; round++) {
            expect((await bombed.run('sleep 0.3; echo in peace')).stdout).toBe('in peace\n');
          }
        await bombed.sandbox.kill();
      });

      it('a memory hog is ended, its sandbox goes on', { timeout: 180_000 }, async () => {
        const worst = await neighbourDuring(async () => {
          const hog = await attacker.run(
            'sudo python3 -c "b=[]\nwhile True: b.append(bytearray(16<<20))" ; echo status $?',
          );
          expect(hog.stdout).not.toContain('status 0');
          await attackerAnswers();
        });
        expect(worst).toBeLessThan(PATIENT_MS);
      });

      it('a filler of /dev/shm fills its own memory', { timeout: 180_000 }, async () => {
        const worst = await neighbourDuring(async () => {
          await attacker.run('sudo dd if=/dev/zero of=/dev/shm/x bs=1M count=4096 2>&1; sudo rm -f /dev/shm/x');
          await attackerAnswers();
        });
        expect(worst).toBeLessThan(PATIENT_MS);
      });

      it('a disk filler gets ENOSPC, and the machine keeps its disk', { timeout: 180_000 }, async () => {
        const free = () => {
          const { bavail, bsize } = statfsSync(world().service.stateDir);
          return (bavail * bsize) / MIB;
        };
        const before = free();
        const worst = await neighbourDuring(async () => {
          const filled = await attacker.run(
            `sudo dd if=/dev/urandom of=/filled bs=1M count=${DISK_MB * 2} 2>&1; sudo sh -c 'while echo x > /more-$((n=n+1)); do [ $n -lt 500 ] || break; done' 2>&1 | tail -n 1`,
          );
          expect(filled.stdout).toMatch(/No space left on device/);
          await attackerAnswers();
          expect(before - free()).toBeLessThan(DISK_MB * 2);
          expect((await neighbour.run('echo kept > ~/file && cat ~/file')).stdout).toBe('kept\n');
        });
        expect(worst).toBeLessThan(PATIENT_MS);
        await attacker.run('sudo rm -f /filled /more-*');
        expect((await attacker.run('echo room > ~/file && cat ~/file')).stdout).toBe('room\n');
      });

      it('busy loops take their own share of the processors', { timeout: 60_000 }, async () => {
        const worst = await neighbourDuring(async () => {
          await attacker.run('for i in $(seq 1 16); do timeout 5 sh -c "while :; do :; done" & done; wait');
        });
        expect(worst).toBeLessThan(PATIENT_MS);
      });

      it('thousands of files, sockets and open files are its own affair', { timeout: 120_000 }, async () => {
        const worst = await neighbourDuring(async () => {
          await attacker.run(
            `mkdir -p ~/many && cd ~/many && seq 1 20000 | xargs touch; python3 -c "
import socket
held=[]
try:
    while len(held) < 100000: held.append(socket.socketpair())
except OSError as error: print(error)
"; rm -rf ~/many`,
          );
          await attackerAnswers();
        });
        expect(worst).toBeLessThan(PATIENT_MS);
      });
    });

    it.runIf(runtime === 'container')('the kernel’s wider doors are shut', async () => {
      const { stdout } = await attacker.sandbox.commands.run(
        `python3 - <<'END'
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
calls = {'bpf': 321, 'userfaultfd': 323, 'io_uring_setup': 425, 'keyctl': 250, 'add_key': 248, 'kexec_load': 246,
         'init_module': 175, 'open_by_handle_at': 304, 'perf_event_open': 298, 'swapon': 167, 'reboot': 169}
for name, number in calls.items():
    ctypes.set_errno(0)
    if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38, 13): print(name, ctypes.get_errno())
for name, family in {'AF_ALG': 38, 'AF_VSOCK': 40}.items():
    try:
        socket.socket(family, socket.SOCK_SEQPACKET if family == 38 else socket.SOCK_STREAM)
        print(name)
    except OSError: pass
for path in ['/proc/sys/kernel/core_pattern', '/proc/sys/vm/overcommit_memory', '/proc/kcore', '/dev/mem', '/dev/kmsg', '/sys/kernel/uevent_helper']:
    try:
        os.close(os.open(path, os.O_WRONLY))
        print(path)
    except OSError: pass
END`,
        { user: 'root' },
      );
      expect(process.arch === 'x64' ? stdout : '').toBe('');
    });
  },
  { SANDBAR_DISK_SIZE_MB: String(DISK_MB), SANDBAR_WARM_POOL: '0' },
);

/** Counts packets that pass this machine from some addresses to another. */
class PacketCounter {
  readonly #table: string;

  static async start(name: string, sources: string[], destination: string): Promise<PacketCounter> {
    const counter = new PacketCounter(name);
    const rule = `ip saddr { ${sources.join(', ')} } ip daddr ${destination} counter name seen`;
    await runCommand('nft', ['-f', '-'], {
      input: `table inet ${counter.#table} {
        counter seen {}
        chain passing { type filter hook forward priority 10; ${rule}; }
        chain arriving { type filter hook input priority 10; ${rule}; }
      }\n`,
    });
    return counter;
  }

  private constructor(name: string) {
    this.#table = `sandbar_test_${name}_${process.pid}`;
  }

  async packets(): Promise<number> {
    const { stdout } = await runCommand('nft', ['list', 'counter', 'inet', this.#table, 'seen']);
    return Number(/packets (\d+)/.exec(stdout)?.[1] ?? Number.NaN);
  }

  async stop(): Promise<void> {
    await runCommand('nft', ['delete', 'table', 'inet', this.#table]);
  }
}
