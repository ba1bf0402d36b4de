import { readdirSync, readFileSync, rmdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { runCommand } from '../../src/core/command.ts';
import { Layout } from '../../src/node/layout.ts';
import { countLeftovers } from './leftovers.ts';

const PATIENCE_MS = 15_000;

/**
 * Leaves of a service what a reboot of its machine would: its state directory. Every process of its sandboxes, their mounts, loop devices,
 * network namespaces, links, rules and control groups go. The service itself must not run.
 */
export async function simulateReboot(stateDir: string): Promise<void> {
  const { scope } = new Layout(stateDir);
  await endProcesses(scope);
  for (const target of mountsBelow(stateDir).reverse())
    await runCommand('umount', ['-l', target], { okStatuses: [0, 32] });
  for (const device of await loopsOf(stateDir)) await runCommand('losetup', ['-d', device], { okStatuses: [0, 1] });
  for (const name of list('/run/netns').filter((name) => name.startsWith(`sandbar-${scope}-`)))
    await runCommand('ip', ['netns', 'delete', name]);
  for (const name of list('/sys/class/net').filter((name) => name.startsWith(`sb${scope}n`)))
    await runCommand('ip', ['link', 'delete', name], { okStatuses: [0, 1] });
  await runCommand('nft', ['delete', 'table', 'inet', `sandbar_${scope}`], { okStatuses: [0, 1] });
  for (const directory of groupsOf(scope).reverse()) await removeGroup(directory);
  // A loop device goes with the last view of its mount, which a container that starts at this moment has too for a while.
  for (const giveUpAt = Date.now() + PATIENCE_MS; ; await delay(100)) {
    const { directories: _, ...left } = await countLeftovers(stateDir);
    if (Object.values(left).every((count) => count === 0)) return;
    if (Date.now() > giveUpAt) throw new Error(`not rebooted: ${JSON.stringify(left)}`);
  }
}

async function endProcesses(scope: string): Promise<void> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const pids = groupsOf(scope).flatMap((directory) => read(`${directory}/cgroup.procs`).split('\n').filter(Boolean));
    if (pids.length === 0) return;
    for (const pid of pids) {
      try {
        process.kill(Number(pid), 'SIGKILL');
      } catch {
        // Gone already.
      }
    }
    await thaw(scope);
    await delay(20);
  }
  throw new Error('processes of sandboxes do not end');
}

/** A frozen process dies only when it runs again. */
async function thaw(scope: string): Promise<void> {
  for (const directory of groupsOf(scope)) {
    for (const [file, value] of [
      ['freezer.state', 'THAWED'],
      ['cgroup.freeze', '0'],
    ] as const)
      await runCommand('sh', ['-c', `[ ! -e "$1" ] || echo ${value} > "$1"`, 'sh', path.join(directory, file)], {
        okStatuses: [0, 1, 2],
      });
  }
}

/** Directories of all control groups of a scope, parents before children. */
function groupsOf(scope: string): string[] {
  const hierarchies = ['/sys/fs/cgroup', ...list('/sys/fs/cgroup').map((name) => `/sys/fs/cgroup/${name}`)];
  return hierarchies.flatMap((hierarchy) => below(`${hierarchy}/sandbar-${scope}`));
}

function below(directory: string): string[] {
  try {
    const entries = readdirSync(directory, { withFileTypes: true });
    return [
      directory,
      ...entries.filter((entry) => entry.isDirectory()).flatMap((entry) => below(path.join(directory, entry.name))),
    ];
  } catch {
    return [];
  }
}

async function removeGroup(directory: string): Promise<void> {
  for (let attempt = 0; attempt < 50; attempt++) {
    try {
      return rmdirSync(directory);
    } catch {
      await delay(20);
    }
  }
}

function mountsBelow(stateDir: string): string[] {
  return read('/proc/self/mounts')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((target) => target.startsWith(`${stateDir}/`));
}

async function loopsOf(stateDir: string): Promise<string[]> {
  const { stdout } = await runCommand('losetup', ['-a', '-O', 'NAME,BACK-FILE', '-n'], { okStatuses: [0, 1] });
  return stdout
    .split('\n')
    .filter((line) => line.includes(`${stateDir}/`))
    .flatMap((line) => line.trim().split(/\s+/)[0] ?? []);
}

function list(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
