import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, SandbarError } from '../../core/errors.ts';
import { OWN_TRACES } from '../disk/layers.ts';
import type { RootEdits } from '../disk/root-edits.ts';
import { rawOf, type WritableDisks } from '../disk/writable-disks.ts';
import type { HostHelper } from '../host-helper.ts';
import {
  idmap,
  makeDirectory,
  type Order,
  overlay,
  remove,
  syncFilesystem,
  unmount,
  writeFile,
} from '../host-orders.ts';
import type { Booted, BootRequest, RunningSandbox, Runtime } from './contract.ts';
import { baseSpec, CAPABILITIES, type OciMount } from './oci-spec.ts';
import type { ProcFiles, ShownFiles } from './proc-files.ts';
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
  readonly #procFiles: ProcFiles;
  readonly #helper: HostHelper;
  /** Parts of roots that are being unmounted, by the directory of their sandbox. */
  readonly #unmounting = new Map<string, Promise<unknown>>();
  /** The filter of system calls as the kernel takes it, base64, once crun has compiled it: it need not do that again for each. */
  #filter: string | undefined;

  constructor(
    programs: { crun: string; hostHelper: string },
    showCgroup2: boolean,
    disks: WritableDisks,
    procFiles: ProcFiles,
    helper: HostHelper,
  ) {
    this.#crun = programs.crun;
    this.#enter = programs.hostHelper;
    this.#showCgroup2 = showCgroup2;
    this.#disks = disks;
    this.#procFiles = procFiles;
    this.#helper = helper;
  }

  hostPids(guestPids: number): number {
    return guestPids;
  }

  async boot(request: BootRequest, signal?: AbortSignal): Promise<Booted> {
    const { directory } = request;
    const shown = await this.#procFiles.of(request.cpuCount, request.memoryMb);
    const spec = this.#spec(request, shown);
    await this.#helper.do(
      ...(await this.#makeRoot(request)),
      writeFile(path.join(directory, 'config.json'), JSON.stringify(spec)),
    );
    const pidFile = path.join(directory, 'pid');
    const logFile = path.join(directory, 'crun.log');
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
          `--root=${path.join(directory, 'crun')}`,
          `--log=${logFile}`,
          'run',
          '--detach',
          `--pid-file=${pidFile}`,
          `--bundle=${directory}`,
          request.sandboxId,
        ],
        { timeoutMs: BOOT_TIMEOUT_MS, discardOutput: true, ...(signal !== undefined && { signal }) },
      );
    } catch (error) {
      const words = await this.lastWords(directory);
      throw new SandbarError('internal', `crun could not start the sandbox: ${words ?? messageOf(error)}`, {
        cause: error,
      });
    }
    // By calls that block: what was just written is in memory, and a turn through the thread pool takes much longer.
    const pid = Number(readFileSync(pidFile, 'utf8'));
    spareFromOom(pid);
    this.#filter ??= await compiledFilter(request);
    this.#unmountParts(request);
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
      await this.#helper.do(syncFilesystem(rawOf(sandbox.directory)), this.#disks.copy(sandbox.directory, imageDir));
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
    const upper = path.join(rawOf(sandbox.directory), 'upper');
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
    await this.#unmounting.get(directory);
    const raw = rawOf(directory);
    // An unmount brings to disk what was written, but not where another namespace happens to have the file system too.
    const isToSync = options.keepDisk && (await isMounted(raw));
    const layers = (await readdir(directory).catch(() => [])).filter((name) => /^layer\d+$/.test(name));
    await this.#helper.do(
      ...(isToSync ? [syncFilesystem(raw)] : []),
      unmount(rootOf(directory)),
      ...layers.map((name) => unmount(path.join(directory, name))),
      ...this.#disks.unmount(directory),
      ...(options.keepDisk ? [] : [this.#disks.remove(directory)]),
      remove(path.join(directory, 'crun')),
    );
  }

  async lastWords(directory: string): Promise<string | undefined> {
    const text = await readFile(path.join(directory, 'crun.log'), 'utf8').catch(() => '');
    return text.trim().split('\n').at(-1)?.slice(-500) || undefined;
  }

  /** What makes the sandbox's root: its own disk, the template's layers as its user namespace sees them, and both merged. */
  async #makeRoot(request: BootRequest): Promise<Order[]> {
    const { directory, idBase, from } = request;
    const ids = { base: idBase, count: IDS_PER_SANDBOX };
    const lowers = lowersOf(request);
    const root = rootOf(directory);
    const disk = path.join(directory, 'disk');
    return [
      ...(await this.#makeDisk(request)),
      ...this.#disks.mount(directory, ids, { isFresh: from?.kind !== 'disk' }),
      ...request.layers.flatMap((layer, index) => {
        const target = lowers[index] ?? '';
        return [makeDirectory(target), idmap(layer, target, ids, 'ro')];
      }),
      makeDirectory(root),
      overlay(
        root,
        // lowerdir names the topmost first.
        `lowerdir=${[...lowers].reverse().join(':')},upperdir=${disk}/upper,workdir=${disk}/work`,
        idBase,
      ),
    ];
  }

  async #makeDisk({ directory, diskSizeMb, from }: BootRequest): Promise<Order[]> {
    if (from?.kind === 'disk') return [];
    if (from !== undefined) return [this.#disks.copy(from.imageDir, directory)];
    return [await this.#disks.make(directory, diskSizeMb)];
  }

  /**
   * The overlay keeps what it was made of; each mount more in the machine's own namespace is copied for every sandbox that is started. Nobody waits for it,
   * and what fails here `clear` does.
   */
  #unmountParts(request: BootRequest): void {
    const { directory } = request;
    const parts = [...lowersOf(request).map(unmount), this.#disks.unmountMapped(directory)];
    const done = this.#helper
      .do(...parts)
      .catch(() => undefined)
      .finally(() => this.#unmounting.delete(directory));
    this.#unmounting.set(directory, done);
  }

  #spec(request: BootRequest, shown: ShownFiles) {
    const spec = baseSpec(request, rootOf(request.directory), CAPABILITIES);
    const readOnlyFile = (source: string, destination: string): OciMount => ({
      destination,
      type: 'bind',
      source,
      options: ['bind', 'ro', 'nosuid', 'nodev', 'noexec'],
    });
    spec.mounts.push(
      { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: ['nosuid', 'noexec', 'nodev'] },
      // sysfs itself would show the machine; what programs look for is the number of CPUs.
      { destination: '/sys', type: 'bind', source: shown.sys, options: ['bind', 'ro', 'nosuid', 'nodev', 'noexec'] },
      readOnlyFile(shown.memInfo, '/proc/meminfo'),
      readOnlyFile(shown.cpuInfo, '/proc/cpuinfo'),
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

function rootOf(directory: string): string {
  return path.join(directory, 'root');
}

/** Where the template's layers are mounted with the ids of a sandbox, lowest first. */
function lowersOf({ directory, layers }: BootRequest): string[] {
  return layers.map((_, index) => path.join(directory, `layer${index}`));
}

/** The kernel should take any other process of the sandbox before the one that can tell what happened. */
function spareFromOom(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, '-900');
  } catch {
    // It has ended already.
  }
}

async function isMounted(target: string): Promise<boolean> {
  const table = await readFile('/proc/self/mounts', 'utf8');
  return table.split('\n').some((line) => line.split(' ')[1] === target);
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
