import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Authority } from '../../src/core/certificates.ts';
import { runCommand } from '../../src/core/command.ts';

const NAME = 'sandbar-internet';
const LINK = 'sbinternet';
const LOCK = `/run/${NAME}.lock`;
const WAIT_MS = 600_000;

/** What is noted of a packet that arrives: a forwarded one has a hop less than one of this machine's own. */
const ARRIVAL = 'ip saddr . ip daddr . ip protocol';
const ARRIVALS = `typeof ${ARRIVAL}; size 4096; flags dynamic`;

/** Every name the servers have a certificate for. */
const NAMES = ['allowed.test', '*.allowed.test', 'other.test', 'ruled.test', '*.ruled.test', 'rebinding.test'] as const;

/**
 * The internet of the tests: a network namespace with hosts in a documentation range (RFC 5737) and on addresses that no sandbox may reach, all
 * served by one program. Nothing leaves the machine.
 */
export class TestInternet {
  /** This machine's own address there. */
  static readonly machine = '198.51.100.1';
  static readonly dns = '198.51.100.53';
  static readonly control = 'http://198.51.100.10:9000';
  static readonly allowed = '198.51.100.20';
  static readonly other = '198.51.100.30';
  static readonly proxy = '198.51.100.40';
  static readonly elsewhere = '198.51.100.200';
  /** Addresses that stand in for metadata services, private networks, other machines. */
  static readonly forbidden = ['169.254.169.254', '10.99.99.99', '172.31.99.99', '192.168.99.99', '100.64.99.99'];

  readonly #directory: string;
  #hosts: ChildProcess | undefined;
  #authority: Authority | undefined;

  private constructor() {
    this.#directory = mkdtempSync(path.join(tmpdir(), 'sandbar-internet-'));
  }

  static async start(): Promise<TestInternet> {
    await takeLock();
    const internet = new TestInternet();
    try {
      await internet.#build();
      await internet.#serve();
      return internet;
    } catch (error) {
      await internet.stop();
      throw error;
    }
  }

  /** Certificate file of the authority that signed for the servers. */
  get authorityFile(): string {
    return this.#authority?.certificateFile ?? '';
  }

  async stop(): Promise<void> {
    if (this.#hosts !== undefined && this.#hosts.exitCode === null) {
      const ended = once(this.#hosts, 'exit');
      this.#hosts.kill('SIGKILL');
      await ended;
    }
    await takeDown();
    rmSync(this.#directory, { recursive: true, force: true });
    rmSync(LOCK, { force: true });
  }

  /** Sets what names lead to: addresses, or a list of answers that are given one after the other, the last for ever. */
  async setNames(zone: Record<string, string[] | string[][]>): Promise<void> {
    await this.#control('/zone', { method: 'POST', body: JSON.stringify(zone) });
  }

  /** Names asked for since the last time this was called. */
  async queries(): Promise<string[]> {
    return (await this.#control('/queries')).json() as Promise<string[]>;
  }

  /** Destinations asked of the SOCKS5 server since the last time this was called, `user@host:port`. */
  async proxied(): Promise<string[]> {
    return (await this.#control('/proxied')).json() as Promise<string[]>;
  }

  /** UDP packets to port 7 since the last time this was called, `sender text`. */
  async datagrams(): Promise<string[]> {
    return (await this.#control('/datagrams')).json() as Promise<string[]>;
  }

  /** Packets that have arrived at forbidden addresses, by kind: whence, whither, how far they came, how many. */
  forbiddenPackets(): Promise<string[]> {
    return packetsAt('forbidden');
  }

  /** Packets that have arrived at `elsewhere`, by kind. */
  packetsElsewhere(): Promise<string[]> {
    return packetsAt('elsewhere');
  }

  #control(pathAndQuery: string, init: RequestInit = {}): Promise<Response> {
    return fetch(`${TestInternet.control}${pathAndQuery}`, init);
  }

  async #build(): Promise<void> {
    await takeDown();
    const { forbidden } = TestInternet;
    const public24 = ADDRESSES.filter((address) => address.startsWith('198.51.') && address !== TestInternet.elsewhere);
    await ip('netns', 'add', NAME);
    await ip('link', 'add', LINK, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', NAME);
    await ip('addr', 'add', `${TestInternet.machine}/24`, 'dev', LINK);
    await ip('link', 'set', LINK, 'up');
    const inside = [
      'link set lo up',
      ...public24.map((address) => `addr add ${address}/24 dev eth0`),
      ...[TestInternet.elsewhere, ...forbidden].map((address) => `addr add ${address}/32 dev lo`),
      'link set eth0 up',
      `route add default via ${TestInternet.machine}`,
    ];
    await runCommand('ip', ['-n', NAME, '-batch', '-'], { input: `${inside.join('\n')}\n` });
    for (const address of [TestInternet.elsewhere, ...forbidden])
      await ip('route', 'add', `${address}/32`, 'via', '198.51.100.10', 'dev', LINK);
    await runCommand('ip', ['netns', 'exec', NAME, 'nft', '-f', '-'], {
      input: `table inet seen {
        set forbidden { ${ARRIVALS}; }
        set elsewhere { ${ARRIVALS}; }
        chain arriving {
          type filter hook prerouting priority -300;
          iifname eth0 ip daddr { ${forbidden.join(', ')} } add @forbidden { ${ARRIVAL} counter }
          iifname eth0 ip daddr ${TestInternet.elsewhere} add @elsewhere { ${ARRIVAL} counter }
        }
      }\n`,
    });
  }

  async #serve(): Promise<void> {
    this.#authority = await Authority.open(path.join(this.#directory, 'authority'), 'Test internet');
    const { cert, key } = await this.#authority.issue(NAMES);
    writeFileSync(path.join(this.#directory, 'cert.pem'), cert);
    writeFileSync(path.join(this.#directory, 'key.pem'), key);
    const program = path.join(import.meta.dirname, 'internet-hosts.ts');
    const hosts = spawn('ip', ['netns', 'exec', NAME, process.execPath, program, this.#directory], {
      env: { PATH: process.env['PATH'], ADDRESSES: ADDRESSES.join(',') },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#hosts = hosts;
    for await (const line of createInterface({ input: hosts.stdout })) if (line === 'ready') return;
    throw new Error('the hosts of the test internet did not start');
  }
}

const ADDRESSES = [
  '198.51.100.10',
  TestInternet.dns,
  TestInternet.allowed,
  TestInternet.other,
  TestInternet.proxy,
  TestInternet.elsewhere,
  ...TestInternet.forbidden,
];

async function takeDown(): Promise<void> {
  await runCommand('ip', ['link', 'del', LINK], { okStatuses: [0, 1] });
  await runCommand('ip', ['netns', 'del', NAME], { okStatuses: [0, 1] });
}

/** One test internet a machine: its addresses are the same for all. A lock whose owner is gone counts as free. */
async function takeLock(): Promise<void> {
  for (const giveUpAt = Date.now() + WAIT_MS; ; ) {
    try {
      // A link is made whole or not at all, with its owner's number as where it leads.
      symlinkSync(String(process.pid), LOCK);
      return;
    } catch {
      if (!isAlive()) rmSync(LOCK, { force: true });
      else if (Date.now() > giveUpAt) throw new Error(`another test has the test internet: ${LOCK}`);
      else await sleep(200);
    }
  }
}

function isAlive(): boolean {
  try {
    process.kill(Number(readlinkSync(LOCK)), 0);
    return true;
  } catch {
    return false;
  }
}

function ip(...args: string[]) {
  return runCommand('ip', args);
}

async function packetsAt(set: string): Promise<string[]> {
  const { stdout } = await runCommand('ip', ['netns', 'exec', NAME, 'nft', 'list', 'set', 'inet', 'seen', set]);
  const [, elements = ''] = /elements = \{([^}]*)\}/.exec(stdout) ?? [];
  return elements
    .split(',')
    .map((element) => element.replaceAll(/\s+/g, ' ').trim())
    .filter(Boolean);
}
