import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { errnoOf, SandbarError } from '../core/errors.ts';

export interface GroupLimits {
  cpuCount: number;
  memoryBytes: number;
  pidsMax: number;
}

export interface GroupUsage {
  cpuUsec: number;
  memoryBytes: number;
  cacheBytes: number;
  pids: number;
}

/** How the machine's control groups are laid out. A hybrid machine has its controllers in v1 and counts as v1. */
export type CgroupVersion = 'v1' | 'v2';

const CONTROLLERS = ['cpu', 'cpuacct', 'cpuset', 'memory', 'pids', 'freezer'] as const;
type Controller = (typeof CONTROLLERS)[number];

/** Of a v2 group's limit, in use by other than cache: then it stands there. */
const V2_SHARE = 0.9;
const KILL_WAIT_MS = 10_000;
const CPU_PERIOD_USEC = 100_000;

/** The control groups of all sandboxes of one service: a group of the scope's own below the root, one below it for each sandbox. */
export class ControlGroups {
  readonly version: CgroupVersion;
  readonly #scope: string;
  /** Directory of each controller's hierarchy; in v2 the same one for all. */
  readonly #mounts: Map<Controller, string>;
  /** Directories of all hierarchies, of those included that we set nothing in: runsc makes a group in each. */
  readonly #hierarchies: string[];
  readonly #cpuTotal = cpus().length;
  #nextCpu = 0;

  constructor(scope: string) {
    this.#scope = `sandbar-${scope}`;
    const table = readFileSync('/proc/self/mounts', 'utf8');
    const found = findHierarchies(table);
    this.version = found.version;
    this.#mounts = found.mounts;
    this.#hierarchies = [...new Set([...this.#mounts.values(), ...otherHierarchies(table)])];
    const missing = (['cpu', 'memory', 'pids'] as const).filter((controller) => !this.#mounts.has(controller));
    if (missing.length > 0)
      throw new SandbarError('unavailable', `control group controllers are missing: ${missing.join(', ')}`);
  }

  /** True where crun needs to be shown another tree: it refuses machines that mix v1 and v2. */
  get hybrid(): boolean {
    return this.version === 'v1' && existsSync('/sys/fs/cgroup/unified/cgroup.procs');
  }

  async start(): Promise<void> {
    for (const [controller, mount] of this.#mounts) {
      const directory = path.join(mount, this.#scope);
      if (this.version === 'v2') await enableControllers(mount);
      await mkdir(directory, { recursive: true });
      if (this.version === 'v2') await enableControllers(directory);
      // A v1 cpuset is born empty, and nothing can join it until it has cpus and memory nodes.
      else if (controller === 'cpuset') inheritCpuset(mount, directory);
    }
  }

  /** The group of a sandbox, whether it exists or not. */
  group(sandboxId: string): ControlGroup {
    const directories = new Map<Controller, string>();
    for (const [controller, mount] of this.#mounts)
      directories.set(controller, path.join(mount, this.#scope, sandboxId));
    return new ControlGroup(this.version, path.join('/', this.#scope, sandboxId), directories);
  }

  /** Names of the sandboxes that have a group. */
  async names(): Promise<string[]> {
    const found = new Set<string>();
    for (const mount of this.#hierarchies) {
      const entries = await readdir(path.join(mount, this.#scope), { withFileTypes: true }).catch(() => []);
      for (const entry of entries) if (entry.isDirectory()) found.add(entry.name);
    }
    return [...found];
  }

  /** Every directory that a sandbox's group may have, those included that a runtime made in hierarchies that we do not use. */
  directoriesOf(sandboxId: string): string[] {
    return this.#hierarchies.map((mount) => path.join(mount, this.#scope, sandboxId));
  }

  /** Removes the scope's own groups; leaves them where a sandbox still lives. */
  async removeScope(): Promise<void> {
    for (const mount of this.#hierarchies) await rmdir(path.join(mount, this.#scope)).catch(() => undefined);
  }

  /** CPUs for a sandbox that has fewer than the machine, spread over all of them; undefined when it may use every one. */
  pickCpus(count: number): string | undefined {
    const total = this.#cpuTotal;
    if (count >= total || !this.#mounts.has('cpuset')) return undefined;
    const picked = Array.from({ length: count }, (_, index) => (this.#nextCpu + index) % total);
    this.#nextCpu = (this.#nextCpu + count) % total;
    return picked.sort((a, b) => a - b).join(',');
  }
}

/** The control group of one sandbox: its limits, its use, and the certain way to stop or end everything in it. */
export class ControlGroup {
  /** As an OCI bundle names it. */
  readonly cgroupsPath: string;
  readonly #version: CgroupVersion;
  readonly #directories: Map<Controller, string>;

  constructor(version: CgroupVersion, cgroupsPath: string, directories: Map<Controller, string>) {
    this.#version = version;
    this.cgroupsPath = cgroupsPath;
    this.#directories = directories;
  }

  /** Files a process writes itself into to join. */
  get joinFiles(): string[] {
    // A single thread that moves itself need not wait for the machine's others, as a process does (about 10 ms).
    const file = this.#version === 'v1' ? 'tasks' : 'cgroup.procs';
    return [...new Set(this.#directories.values())].map((directory) => path.join(directory, file));
  }

  /**
   * Makes the group. By calls that block: the files are the kernel's own memory, and a turn through the thread pool for each
   * takes a hundred times as long as the write.
   */
  create(limits: GroupLimits, cpuList: string | undefined): void {
    for (const directory of new Set(this.#directories.values())) mkdirSync(directory, { recursive: true });
    const cpuset = this.#directories.get('cpuset');
    if (this.#version === 'v1' && cpuset !== undefined) inheritCpuset(path.dirname(cpuset), cpuset);
    if (cpuList !== undefined) this.#write('cpuset', 'cpuset.cpus', cpuList);
    const quota = String(limits.cpuCount * CPU_PERIOD_USEC);
    if (this.#version === 'v2') this.#write('cpu', 'cpu.max', `${quota} ${CPU_PERIOD_USEC}`);
    else this.#write('cpu', 'cpu.cfs_quota_us', quota);
    this.#write('pids', 'pids.max', String(limits.pidsMax));
    this.setMemory(limits.memoryBytes, 0);
  }

  /**
   * Whether the group has only what the others leave of the processors. Nothing changes where the group is not there any more or yet, or, before
   * Linux 5.15, the setting.
   */
  setBackground(background: boolean): void {
    try {
      writeFileSync(path.join(this.#directory('cpu'), 'cpu.idle'), background ? '1' : '0', { flag: 'r+' });
    } catch (error) {
      // The second of a group that is removed at this very moment.
      if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error;
    }
  }

  /**
   * Sets the memory limit. With `headroomBytes` the group may go over it by so much for as long as it takes to help it (see `stalled`): in v2
   * slowed by memory.high, below memory.max; in v1 unhindered, and then it waits instead of killing. Not everything waits: what the kernel
   * itself needs for the group, such as for a new thread or to deliver a signal, is refused there, and gVisor ends at that.
   */
  setMemory(limitBytes: number, headroomBytes: number): void {
    if (this.#version === 'v2') {
      this.#write('memory', 'memory.max', String(limitBytes + headroomBytes));
      this.#write('memory', 'memory.high', headroomBytes > 0 ? String(limitBytes) : 'max');
      // Absent where the kernel has no swap accounting.
      if (existsSync(path.join(this.#directory('memory'), 'memory.swap.max')))
        this.#write('memory', 'memory.swap.max', '0');
      return;
    }
    this.#write('memory', 'memory.limit_in_bytes', String(limitBytes + headroomBytes));
    if (headroomBytes > 0) this.#write('memory', 'memory.oom_control', '1');
  }

  /**
   * Whether the group has come to its memory limit by more than cache, which the kernel would take back. By calls that block, as there may be
   * little time.
   */
  stalled(limitBytes: number): boolean {
    const isV2 = this.#version === 'v2';
    const used = Number(this.#readNow('memory', isV2 ? 'memory.current' : 'memory.usage_in_bytes'));
    if (used < limitBytes) return false;
    const stat = this.#readNow('memory', 'memory.stat');
    const prefix = isV2 ? '' : 'total_';
    const cached = counterIn(stat, `${prefix}inactive_file`) + counterIn(stat, `${prefix}active_file`);
    // There it is slowed down so much at its limit that it would not pass it without the little cache that is left.
    if (isV2) return used - cached >= limitBytes * V2_SHARE;
    return used - cached >= limitBytes || /^under_oom 1$/m.test(this.#readNow('memory', 'memory.oom_control'));
  }

  /** Whether the group has used up so much, and nothing slows it down there: not in v2, nor where the group is gone. */
  outgrows(bytes: number): boolean {
    if (this.#version === 'v2') return false;
    try {
      return Number(this.#readNow('memory', 'memory.usage_in_bytes')) >= bytes;
    } catch {
      return false;
    }
  }

  /** The directory by which the kernel can be asked to tell of memory in use; undefined in v2, which slows the group down instead. */
  get memoryEvents(): string | undefined {
    return this.#version === 'v1' ? this.#directory('memory') : undefined;
  }

  /** How often the kernel killed for want of memory in this group. */
  async oomKills(): Promise<number> {
    const file = this.#version === 'v2' ? 'memory.events' : 'memory.oom_control';
    return Number(/^oom_kill (\d+)$/m.exec(await this.#read('memory', file))?.[1] ?? 0);
  }

  /** Processes and threads in the group. */
  async pids(): Promise<number> {
    return Number(await this.#read('pids', 'pids.current'));
  }

  /** Whether forks are being refused: the group holds as many processes as it may. */
  async pidsExhausted(): Promise<boolean> {
    const [current, max] = await Promise.all([this.#read('pids', 'pids.current'), this.#read('pids', 'pids.max')]);
    return Number(current) >= Number(max.trim() === 'max' ? Infinity : max);
  }

  async usage(): Promise<GroupUsage> {
    const pids = await this.pids();
    const stat = await this.#read('memory', 'memory.stat');
    const counter = (name: string) => counterIn(stat, name);
    if (this.#version === 'v2') {
      const cpu = await this.#read('cpu', 'cpu.stat');
      return {
        cpuUsec: Number(/^usage_usec (\d+)$/m.exec(cpu)?.[1] ?? 0),
        memoryBytes: Number(await this.#read('memory', 'memory.current')),
        cacheBytes: counter('inactive_file') + counter('active_file'),
        pids,
      };
    }
    return {
      cpuUsec: Math.round(Number(await this.#read('cpuacct', 'cpuacct.usage')) / 1000),
      memoryBytes: Number(await this.#read('memory', 'memory.usage_in_bytes')),
      cacheBytes: counter('total_inactive_file') + counter('total_active_file'),
      pids,
    };
  }

  async freeze(): Promise<void> {
    if (this.#version === 'v2') await this.#setFrozen('cgroup.freeze', '1', 'cgroup.events', /^frozen 1$/m);
    else await this.#setFrozen('freezer.state', 'FROZEN', 'freezer.state', /^FROZEN$/m);
  }

  async thaw(): Promise<void> {
    if (this.#version === 'v2') await this.#setFrozen('cgroup.freeze', '0', 'cgroup.events', /^frozen 0$/m);
    else await this.#setFrozen('freezer.state', 'THAWED', 'freezer.state', /^THAWED$/m);
  }

  async frozen(): Promise<boolean> {
    if (this.#version === 'v2') return /^frozen 1$/m.test(await this.#read('freezer', 'cgroup.events'));
    return (await this.#read('freezer', 'freezer.state')).trim() !== 'THAWED';
  }

  processes(): number[] {
    try {
      return this.#readNow('pids', 'cgroup.procs').split('\n').filter(Boolean).map(Number);
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return [];
      throw error;
    }
  }

  /** Ends every process of the group and resolves when the last is gone. */
  async kill(): Promise<void> {
    const giveUpAt = Date.now() + KILL_WAIT_MS;
    for (let waitMs = 1; ; waitMs = Math.min(waitMs * 2, 50)) {
      const pids = this.processes();
      if (pids.length === 0) return;
      if (Date.now() > giveUpAt) throw new SandbarError('internal', `processes ${pids.join(', ')} do not end`);
      for (const pid of pids) killProcess(pid);
      // A process dies only when it runs again.
      this.setBackground(false);
      await this.thaw().catch(() => undefined);
      await delay(waitMs);
    }
  }

  async #setFrozen(file: string, value: string, stateFile: string, reached: RegExp): Promise<void> {
    const giveUpAt = Date.now() + KILL_WAIT_MS;
    for (let waitMs = 1; ; waitMs = Math.min(waitMs * 2, 20)) {
      // A v1 freezer that meets a forking process stays FREEZING until it is asked again.
      this.#write('freezer', file, value);
      if (reached.test(this.#readNow('freezer', stateFile))) return;
      if (Date.now() > giveUpAt) throw new SandbarError('internal', `control group did not become ${value}`);
      await delay(waitMs);
    }
  }

  #directory(controller: Controller): string {
    const directory = this.#directories.get(controller);
    if (directory === undefined) throw new SandbarError('unavailable', `no ${controller} controller on this machine`);
    return directory;
  }

  #read(controller: Controller, file: string): Promise<string> {
    return readFile(path.join(this.#directory(controller), file), 'utf8');
  }

  #readNow(controller: Controller, file: string): string {
    return readFileSync(path.join(this.#directory(controller), file), 'utf8');
  }

  #write(controller: Controller, file: string, value: string): void {
    writeFileSync(path.join(this.#directory(controller), file), value);
  }
}

/** A line `name value` of memory.stat. */
function counterIn(stat: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0);
}

function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error;
  }
}

/** Reads from the table of mounts where each controller lives. */
export function findHierarchies(mountTable: string): { version: CgroupVersion; mounts: Map<Controller, string> } {
  const mounts = new Map<Controller, string>();
  let unified: string | undefined;
  for (const line of mountTable.split('\n')) {
    const [, directory = '', type, options = ''] = line.split(' ');
    if (type === 'cgroup2') unified ??= directory;
    if (type !== 'cgroup') continue;
    const names = options.split(',');
    for (const controller of CONTROLLERS)
      if (names.includes(controller) && !mounts.has(controller)) mounts.set(controller, directory);
  }
  if (mounts.has('memory') && mounts.has('pids')) return { version: 'v1', mounts };
  const all = new Map<Controller, string>();
  if (unified !== undefined) for (const controller of CONTROLLERS) all.set(controller, unified);
  return { version: 'v2', mounts: all };
}

/** v1 hierarchies that we set nothing in. */
function otherHierarchies(mountTable: string): string[] {
  const found: string[] = [];
  for (const line of mountTable.split('\n')) {
    const [, directory = '', type, options = ''] = line.split(' ');
    if (type === 'cgroup' && !CONTROLLERS.some((controller) => options.split(',').includes(controller)))
      found.push(directory);
  }
  return found;
}

async function enableControllers(directory: string): Promise<void> {
  for (const controller of ['cpu', 'cpuset', 'memory', 'pids'])
    await writeFile(path.join(directory, 'cgroup.subtree_control'), `+${controller}`).catch(() => undefined);
}

function inheritCpuset(parent: string, directory: string): void {
  for (const file of ['cpuset.cpus', 'cpuset.mems'])
    writeFileSync(path.join(directory, file), readFileSync(path.join(parent, file), 'utf8').trim());
}
