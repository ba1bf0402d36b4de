import { globSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runCommand } from '../../src/core/command.ts';
import { Layout } from '../../src/node/layout.ts';

/**
 * Removes by force whatever a service of one state directory has on the machine, and the directory. It trusts nothing of the service,
 * which may be what is broken, and touches only what bears the scope or the path of the directory.
 */
export async function sweep(stateDir: string): Promise<void> {
  const { scope } = new Layout(stateDir);
  for (let round = 0; round < 40 && killAll(stateDir, scope); round++) await sleep(50);
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n');
  const points = mounts.map((line) => line.split(' ')[1] ?? '').filter((point) => point.startsWith(`${stateDir}/`));
  for (const point of points.reverse()) await quietly('umount', ['--lazy', point]);
  const loops = await runCommand('losetup', ['-a', '-n', '-O', 'NAME,BACK-FILE'], { okStatuses: [0, 1] });
  for (const line of loops.stdout.split('\n')) {
    const [name, file] = line.trim().split(/\s+/);
    if (name !== undefined && file?.startsWith(`${stateDir}/`)) await quietly('losetup', ['-d', name]);
  }
  for (const name of list('/sys/class/net'))
    if (name.startsWith(`sb${scope}n`)) await quietly('ip', ['link', 'del', name]);
  for (const name of list('/run/netns'))
    if (name.startsWith(`sandbar-${scope}-`)) await quietly('ip', ['netns', 'del', name]);
  await quietly('nft', ['delete', 'table', 'inet', `sandbar_${scope}`]);
  await quietly('nft', ['delete', 'table', 'inet', `sandbar_${scope}_spare`]);
  for (const group of groupsOf(scope)) {
    try {
      rmdirSync(group);
    } catch {
      // Still busy: the next sweep of the machine, not of this directory, would find it.
    }
  }
  rmSync(stateDir, { recursive: true, force: true });
}

/** Kills what runs in the groups of the scope and what names the directory on its command line. True when there was any. */
function killAll(stateDir: string, scope: string): boolean {
  const pids = new Set<number>();
  for (const group of groupsOf(scope))
    for (const pid of read(path.join(group, 'cgroup.procs')).split('\n')) if (pid !== '') pids.add(Number(pid));
  for (const pid of list('/proc').filter((name) => /^\d+$/.test(name)))
    if (read(`/proc/${pid}/cmdline`).includes(`${stateDir}/`)) pids.add(Number(pid));
  pids.delete(process.pid);
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It is gone.
    }
  }
  return pids.size > 0;
}

/** Directories of the scope's control groups in every hierarchy, the innermost first. */
function groupsOf(scope: string): string[] {
  return [`/sys/fs/cgroup/sandbar-${scope}`, `/sys/fs/cgroup/*/sandbar-${scope}`]
    .flatMap((pattern) => globSync([pattern, `${pattern}/**/`]))
    .map((directory) => directory.replace(/\/$/, ''))
    .sort((one, other) => other.length - one.length);
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

async function quietly(program: string, args: string[]): Promise<void> {
  await runCommand(program, args).catch(() => undefined);
}
