import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { runCommand } from '../../src/core/command.ts';
import { Layout } from '../../src/node/layout.ts';

/** What a service of one state directory has on the machine, by kind. */
export interface Leftovers {
  namespaces: number;
  links: number;
  mounts: number;
  loops: number;
  cgroups: number;
  processes: number;
  directories: number;
  fencedSlots: number;
}

/** Counts everything on the machine that bears the scope or the path of a state directory. */
export async function countLeftovers(stateDir: string): Promise<Leftovers> {
  const layout = new Layout(stateDir);
  const { scope } = layout;
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n');
  const losetup = await runCommand('losetup', ['-a', '-O', 'BACK-FILE'], { okStatuses: [0, 1] });
  const fence = await runCommand('nft', ['list', 'set', 'inet', `sandbar_${scope}`, 'slots'], { okStatuses: [0, 1] });
  return {
    namespaces: list('/run/netns').filter((name) => name.startsWith(`sandbar-${scope}-`)).length,
    links: list('/sys/class/net').filter((name) => name.startsWith(`sb${scope}n`)).length,
    mounts: mounts.filter((line) => line.includes(`${stateDir}/`)).length,
    loops: losetup.stdout.split('\n').filter((line) => line.includes(`${stateDir}/`)).length,
    cgroups: countGroups(scope),
    processes: countProcesses(stateDir),
    directories: list(layout.sandboxesDir).length,
    fencedSlots: (fence.stdout.match(/" \. /g) ?? []).length,
  };
}

/** What a killed sandbox stood on is taken apart in the background, and that may wait for a second. */
const SETTLED_MS = 1_500;

/** The same once it has stopped changing. */
export async function settledLeftovers(stateDir: string): Promise<Leftovers> {
  let last = '';
  for (let since = Date.now(); ; await sleep(300)) {
    const now = await countLeftovers(stateDir);
    if (JSON.stringify(now) !== last) since = Date.now();
    else if (Date.now() - since > SETTLED_MS) return now;
    last = JSON.stringify(now);
  }
}

function list(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

/** Sandbox groups of the scope, counted in the hierarchy that has most. */
function countGroups(scope: string): number {
  const hierarchies = ['/sys/fs/cgroup', ...list('/sys/fs/cgroup').map((name) => `/sys/fs/cgroup/${name}`)];
  const counts = hierarchies.map((hierarchy) => {
    try {
      return readdirSync(`${hierarchy}/sandbar-${scope}`, { withFileTypes: true }).filter((entry) =>
        entry.isDirectory(),
      ).length;
    } catch {
      return 0;
    }
  });
  return Math.max(0, ...counts);
}

/** Runtime processes that name the state directory on their command line. */
function countProcesses(stateDir: string): number {
  return list('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        return /runsc|crun/.test(words) && words.includes(stateDir);
      } catch {
        return false;
      }
    }).length;
}
