import { readdirSync, readFileSync } from 'node:fs';
import { Layout } from '../src/node/layout.ts';

const CLOCK_TICKS_PER_SECOND = 100;

/** Processes of a service's sandboxes: those in their control groups, and runtimes that bear the state directory on their command line. */
export function sandboxProcesses(stateDir: string, servicePid: number): number[] {
  const group = groupOf(stateDir);
  const own = new Set(serviceProcesses(stateDir, servicePid));
  return allProcesses().filter((pid) => {
    const words = read(pid, 'cmdline');
    const isRuntime = /runsc|crun/.test(words) && words.includes(stateDir);
    return !own.has(pid) && (isRuntime || read(pid, 'cgroup').includes(group));
  });
}

/** The service and the programs it keeps running beside it. */
export function serviceProcesses(stateDir: string, servicePid: number): number[] {
  const group = groupOf(stateDir);
  const found = [servicePid];
  const all = allProcesses();
  for (const parent of found)
    for (const pid of all) if (parentOf(pid) === parent && !read(pid, 'cgroup').includes(group)) found.push(pid);
  return found;
}

/** Memory of processes, MB, what they share with others counted in proportion. */
export function pssMb(pids: readonly number[]): number {
  const kilobytes = pids.map((pid) => Number(/^Pss:\s+(\d+)/m.exec(read(pid, 'smaps_rollup'))?.[1] ?? 0));
  return kilobytes.reduce((sum, each) => sum + each, 0) / 1024;
}

/** Time that processes have had a CPU, seconds. */
export function cpuSeconds(pids: readonly number[]): number {
  const ticks = pids.map((pid) => {
    const fields = statFields(pid);
    return Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
  });
  return ticks.reduce((sum, each) => sum + each, 0) / CLOCK_TICKS_PER_SECOND;
}

/** What the control group of each sandbox of a service has in its path. */
function groupOf(stateDir: string): string {
  return `/sandbar-${new Layout(stateDir).scope}/`;
}

function parentOf(pid: number): number {
  return Number(statFields(pid)[1]);
}

/** Fields of /proc/<pid>/stat from the third on: the second, the name, may hold anything. */
function statFields(pid: number): string[] {
  const text = read(pid, 'stat');
  return text.slice(text.lastIndexOf(')') + 2).split(' ');
}

function allProcesses(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** A file of a process; empty where the process has gone. */
function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}
