import { spawn } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, SandbarError } from '../../core/errors.ts';
import { OWN_TRACES } from '../disk/layers.ts';
import type { RootEdits } from '../disk/root-edits.ts';
import type { WritableDisks } from '../disk/writable-disks.ts';
import type { HostHelper } from '../host-helper.ts';
import type { Booted, BootRequest, RunningSandbox, Runtime } from './contract.ts';
import { baseSpec, CAPABILITIES, type OciMount } from './oci-spec.ts';
import { cpuInfo, memInfo } from './proc-files.ts';
import { seccompProfile } from './seccomp.ts';

const BOOT_TIMEOUT_MS = 30_000;
/** Of the kernel's filter programs. */
const INSTRUCTION_BYTES = 8;
/** Ids of one user namespace. */
export const IDS_PER_SANDBOX = 65_536;

/**
 * A container by crun: shares the machine's kernel, so it is for code that is trusted more. A user namespace with a range of its own, Docker's
 * small set of capabilities in it, system calls denied by default, the template's layers id-mapped into the range.
 */
export class ContainerRuntime implements Runtime {
  readonly name = 'container';
  /** Only gVisor can write memory down; a container is held in memory, and what survives a reboot is its disk. */
  readonly savesMemory = false;
  readonly memoryOverheadBytes = 4 * 1024 * 1024;
  readonly #crun: string;
  readonly #enter: string;
  readonly #showCgroup2: boolean;
  readonly #disks: WritableDisks;
  readonly #helper: HostHelper;
  /** The filter of system calls as the kernel takes it, base64, once crun has compiled it: it need not do that again for each. */
  #filter: string | undefined;

  constructor(
    programs: { crun: string; hostHelper: string },
    showCgroup2: boolean,
    disks: WritableDisks,
    helper: HostHelper,
  ) {
    this.#crun = programs.crun;
    this.#enter = programs.hostHelper;
    this.#showCgroup2 = showCgroup2;
    this.#disks = disks;
    this.#helper = helper;
  }

  hostPids(guestPids: number): number {
    return guestPids;
  }

  async boot(request: BootRequest, signal?: AbortSignal): Promise<Booted> {
    const bundle = path.join(request.directory, 'bundle');
    const places = placesOf(request.directory);
    await Promise.all([bundle, places.sys, places.root].map((place) => mkdir(place, { recursive: true })));
    await this.#mountRoot(request);
    await this.#writeProcFiles(request, places);
    await writeFile(path.join(bundle, 'config.json'), JSON.stringify(this.#spec(request, places)), { mode: 0o600 });
    const pidFile = path.join(request.directory, 'pid');
    const logFile = path.join(request.directory, 'crun.log');
    try {
      await this.#helper.run(
        this.#enter,
        [
          'enter',
          ...request.group.joinFiles.flatMap((file) => ['--cgroup', file]),
          ...(this.#showCgroup2 ? ['--cgroup2-view'] : []),
          '--',
          this.#crun,
          '--cgroup-manager=disabled',
          `--root=${path.join(request.directory, 'crun')}`,
          `--log=${logFile}`,
          'run',
          '--detach',
          `--pid-file=${pidFile}`,
          `--bundle=${bundle}`,
          request.sandboxId,
        ],
        { timeoutMs: BOOT_TIMEOUT_MS, discardOutput: true, ...(signal !== undefined && { signal }) },
      );
    } catch (error) {
      const words = await this.lastWords(request.directory);
      throw new SandbarError('internal', `crun could not start the sandbox: ${words ?? messageOf(error)}`, {
        cause: error,
      });
    }
    const pid = Number(await readFile(pidFile, 'utf8'));
    this.#filter ??= await compiledFilter(request);
    // The kernel should take any other process of the sandbox before the one that can tell what happened.
    await writeFile(`/proc/${pid}/oom_score_adj`, '-900').catch(() => undefined);
    return { pid };
  }

  async hold({ group }: RunningSandbox): Promise<void> {
    await group.freeze();
  }

  async release({ group }: RunningSandbox): Promise<void> {
    await group.thaw();
  }

  /** Held while its disk is copied, so that the copy is of one instant. */
  async save(sandbox: RunningSandbox, imageDir: string): Promise<void> {
    const wasFrozen = await sandbox.group.frozen();
    await sandbox.group.freeze();
    try {
      await this.#helper.syncFilesystem(path.join(sandbox.directory, 'raw'));
      await this.#disks.copy(sandbox.directory, imageDir);
    } finally {
      if (!wasFrozen) await sandbox.group.thaw();
    }
  }

  async exportChanges(
    sandbox: RunningSandbox,
    directory: string,
    edits: RootEdits,
    signal?: AbortSignal,
  ): Promise<void> {
    const upper = path.join(sandbox.directory, 'raw', 'upper');
    const tar = spawn(
      'tar',
      ['--create', '--file=-', '--xattrs', '--xattrs-include=*', '--numeric-owner', '-C', upper, '.'],
      {
        stdio: ['ignore', 'pipe', 'pipe'],
        ...(signal !== undefined && { signal }),
      },
    );
    let complaint = '';
    tar.stderr.on('data', (chunk: Buffer) => {
      complaint = `${complaint}${chunk}`.slice(-2000);
    });
    const ended = new Promise<number | null>((resolve) => {
      tar.on('close', resolve);
      tar.on('error', () => resolve(null));
    });
    await edits.unpack(
      directory,
      tar.stdout,
      { form: 'changes', limitBytes: Number.MAX_SAFE_INTEGER, skip: OWN_TRACES },
      signal,
    );
    if ((await ended) !== 0) throw new SandbarError('internal', `tar could not read the changes: ${complaint.trim()}`);
  }

  async clear(_sandboxId: string, directory: string, options = { keepDisk: false }): Promise<void> {
    const places = placesOf(directory);
    const mounted = await mountsIn(directory);
    const raw = path.join(directory, 'raw');
    // An unmount brings to disk what was written, but not where another namespace happens to have the file system too.
    if (options.keepDisk && mounted.includes(raw)) await this.#helper.syncFilesystem(raw);
    await this.#helper.unmount(places.root);
    for (const target of mounted.filter(isLayer)) await this.#helper.unmount(target);
    await this.#disks.unmount(directory);
    if (!options.keepDisk) await this.#disks.remove(directory);
    await rm(path.join(directory, 'crun'), { recursive: true, force: true });
  }

  async lastWords(directory: string): Promise<string | undefined> {
    const text = await readFile(path.join(directory, 'crun.log'), 'utf8').catch(() => '');
    return text.trim().split('\n').at(-1)?.slice(-500) || undefined;
  }

  /** The sandbox's own disk, the template's layers as its user namespace sees them, and both merged. */
  async #mountRoot(request: BootRequest): Promise<void> {
    const places = placesOf(request.directory);
    const lowers = request.layers.map((_, index) => path.join(request.directory, `layer${index}`));
    await Promise.all([
      this.#mountDisk(request),
      ...request.layers.map(async (layer, index) => {
        const target = lowers[index] ?? '';
        await mkdir(target, { recursive: true });
        await this.#helper.idmap(layer, target, { base: request.idBase, count: IDS_PER_SANDBOX }, 'ro');
      }),
    ]);
    const lower = [...lowers].reverse().join(':');
    await this.#helper.overlay(
      places.root,
      `lowerdir=${lower},upperdir=${places.disk}/upper,workdir=${places.disk}/work`,
      request.idBase,
    );
  }

  async #mountDisk({ directory, diskSizeMb, idBase, from }: BootRequest): Promise<void> {
    if (from?.kind === 'files' || from?.kind === 'memory') await this.#disks.copy(from.imageDir, directory);
    else if (from?.kind !== 'disk') await this.#disks.make(directory, diskSizeMb);
    const ids = { base: idBase, count: IDS_PER_SANDBOX };
    await this.#disks.mount(directory, ids, { isFresh: from?.kind !== 'disk' });
  }

  /** Files shown in place of the machine's own, so that programs size themselves by the sandbox's limits. */
  async #writeProcFiles(request: BootRequest, places: Places): Promise<void> {
    const online = `0-${request.cpuCount - 1}\n`;
    const cpuDirectory = path.join(places.sys, 'devices/system/cpu');
    await mkdir(cpuDirectory, { recursive: true });
    await Promise.all([
      writeFile(places.memInfo, memInfo(request.memoryMb, 0, 0)),
      writeFile(places.cpuInfo, cpuInfo(await readFile('/proc/cpuinfo', 'utf8'), request.cpuCount)),
      ...['online', 'possible', 'present'].map((file) => writeFile(path.join(cpuDirectory, file), online)),
    ]);
  }

  #spec(request: BootRequest, places: Places) {
    const spec = baseSpec(request, places.root, CAPABILITIES);
    const readOnlyFile = (source: string, destination: string): OciMount => ({
      destination,
      type: 'bind',
      source,
      options: ['bind', 'ro', 'nosuid', 'nodev', 'noexec'],
    });
    spec.mounts.push(
      { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: ['nosuid', 'noexec', 'nodev'] },
      // sysfs itself would show the machine; what programs look for is the number of CPUs.
      { destination: '/sys', type: 'bind', source: places.sys, options: ['bind', 'ro', 'nosuid', 'nodev', 'noexec'] },
      readOnlyFile(places.memInfo, '/proc/meminfo'),
      readOnlyFile(places.cpuInfo, '/proc/cpuinfo'),
    );
    const ids = [{ containerID: 0, hostID: request.idBase, size: IDS_PER_SANDBOX }];
    spec.linux.namespaces.push({ type: 'user' }, { type: 'cgroup' });
    spec.linux.uidMappings = ids;
    spec.linux.gidMappings = ids;
    spec.linux.maskedPaths = MASKED_PATHS;
    spec.linux.readonlyPaths = READ_ONLY_PATHS;
    spec.linux.seccomp = seccompProfile();
    if (this.#filter !== undefined) spec.annotations = { 'run.oci.seccomp_bpf_data': this.#filter };
    return spec;
  }
}

/** What crun made of the profile for a sandbox that it has just started. */
async function compiledFilter({ directory, sandboxId }: BootRequest): Promise<string | undefined> {
  const file = path.join(directory, 'crun', sandboxId, 'seccomp.bpf');
  const filter = await readFile(file).catch(() => Buffer.alloc(0));
  return filter.length > 0 && filter.length % INSTRUCTION_BYTES === 0 ? filter.toString('base64') : undefined;
}

interface Places {
  root: string;
  disk: string;
  sys: string;
  memInfo: string;
  cpuInfo: string;
}

export function placesOf(directory: string): Places {
  return {
    root: path.join(directory, 'root'),
    disk: path.join(directory, 'disk'),
    sys: path.join(directory, 'sys'),
    memInfo: path.join(directory, 'meminfo'),
    cpuInfo: path.join(directory, 'cpuinfo'),
  };
}

async function mountsIn(directory: string): Promise<string[]> {
  const table = await readFile('/proc/self/mounts', 'utf8');
  return table
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((target) => target.startsWith(`${directory}/`));
}

function isLayer(target: string): boolean {
  return path.basename(target).startsWith('layer');
}

const MASKED_PATHS = [
  '/proc/acpi',
  '/proc/asound',
  '/proc/interrupts',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/proc/timer_list',
  '/proc/timer_stats',
];

const READ_ONLY_PATHS = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];
