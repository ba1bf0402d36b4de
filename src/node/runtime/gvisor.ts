import { readFileSync } from 'node:fs';
import { mkdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../../core/command.ts';
import { messageOf, SandbarError } from '../../core/errors.ts';
import { OWN_TRACES } from '../disk/layers.ts';
import type { RootEdits } from '../disk/root-edits.ts';
import type { SharedRoots } from '../disk/shared-roots.ts';
import type { HostHelper } from '../host-helper.ts';
import { makeDirectory, remove, writeFile } from '../host-orders.ts';
import type { Booted, BootRequest, RunningSandbox, Runtime } from './contract.ts';
import { baseSpec, CAPABILITIES } from './oci-spec.ts';

const BOOT_TIMEOUT_MS = 120_000;
const SAVE_TIMEOUT_MS = 600_000;
const EXPORT_TIMEOUT_MS = 3_600_000;

/**
 * gVisor: a kernel of its own, written in Go, between the sandbox and the machine. Its root file system is an overlay kept by that kernel: the
 * template's directory below, one file of the sandbox's own above, limited in size.
 */
export class GvisorRuntime implements Runtime {
  readonly name = 'gvisor';
  readonly savesMemory = true;
  /** The kernel itself: its heap, page tables of the stub processes, network buffers. */
  readonly memoryOverheadBytes = 192 * 1024 * 1024;
  readonly #runsc: string;
  readonly #roots: SharedRoots;
  readonly #helper: HostHelper;

  constructor(runsc: string, roots: SharedRoots, helper: HostHelper) {
    this.#runsc = runsc;
    this.#roots = roots;
    this.#helper = helper;
  }

  /**
   * Each process inside is a stub of two host threads. A fork that the limit inside refuses leaves a stub too, so a fork storm goes on growing
   * out here until the service ends it (see Relief); running out before that would end the whole sandbox.
   */
  hostPids(guestPids: number): number {
    return guestPids * 8 + 4096;
  }

  async boot(request: BootRequest, signal?: AbortSignal): Promise<Booted> {
    const root = await this.#roots.acquire(request.sandboxId, request.layers);
    const bundle = path.join(request.directory, 'bundle');
    const spec = baseSpec(request, root, gvisorCapabilities);
    spec.linux.cgroupsPath = request.group.cgroupsPath;
    spec.mounts.push({
      destination: '/sys',
      type: 'sysfs',
      source: 'sysfs',
      options: ['nosuid', 'noexec', 'nodev', 'ro'],
    });
    await this.#helper.do(
      makeDirectory(bundle),
      makeDirectory(path.join(request.directory, 'overlay')),
      writeFile(path.join(bundle, 'config.json'), JSON.stringify(spec)),
      // Made here, so that its first page is there already: where the sandbox has no memory left it could not write what it ends of.
      writeFile(panicFile(request.directory), '\n'),
    );
    const pidFile = path.join(request.directory, 'pid');
    try {
      await this.#helper.run(
        this.#runsc,
        [
          ...this.#flags(request.directory, request.diskSizeMb),
          ...verbOf(request),
          ...['--detach', '--pid-file', pidFile, '--bundle', bundle, request.sandboxId],
        ],
        { timeoutMs: BOOT_TIMEOUT_MS, discardOutput: true, ...(signal !== undefined && { signal }) },
      );
    } catch (error) {
      const words = await this.lastWords(request.directory);
      throw new SandbarError('internal', `gVisor could not start the sandbox: ${words ?? messageOf(error)}`, {
        cause: error,
      });
    }
    return { pid: Number(readFileSync(pidFile, 'utf8')) };
  }

  /** runsc's own pause: unlike a frozen control group, it leaves the kernel of the sandbox able to write itself down. */
  async hold(sandbox: RunningSandbox): Promise<void> {
    await this.#reach('paused', 'pause', sandbox);
  }

  async release(sandbox: RunningSandbox): Promise<void> {
    await this.#reach('running', 'resume', sandbox);
  }

  async save(sandbox: RunningSandbox, imageDir: string, what: { memory: boolean; files: boolean }): Promise<void> {
    if (what.memory) {
      const memory = path.join(imageDir, 'memory');
      await mkdir(memory);
      await this.#ask(
        sandbox,
        ...[
          'checkpoint',
          '--leave-running',
          '--exclude-committed-zero-pages',
          '--image-path',
          memory,
          sandbox.sandboxId,
        ],
      );
    }
    if (what.files) {
      const files = path.join(imageDir, 'files');
      await mkdir(files);
      await this.#ask(sandbox, 'fscheckpoint', '--leave-running', '--image-path', files, sandbox.sandboxId);
    }
  }

  async exportChanges(
    sandbox: RunningSandbox,
    directory: string,
    edits: RootEdits,
    signal?: AbortSignal,
  ): Promise<void> {
    // Not by standard output, on which runsc also says what it does.
    const pipe = path.join(sandbox.directory, 'changes');
    await rm(pipe, { force: true });
    await runCommand('mkfifo', ['-m', '600', pipe]);
    // Whichever of the two fails ends the other, which would wait for it at the pipe.
    const failed = new AbortController();
    const either = signal === undefined ? failed.signal : AbortSignal.any([signal, failed.signal]);
    const ending = (error: unknown) => {
      failed.abort(error);
      throw error;
    };
    const words = [`--root=${path.join(sandbox.directory, 'runsc')}`, 'tar', 'rootfs-upper', '--file', pipe];
    await Promise.all([
      runCommand(this.#runsc, [...words, sandbox.sandboxId], { timeoutMs: EXPORT_TIMEOUT_MS, signal: either }).catch(
        ending,
      ),
      edits
        .unpack(
          directory,
          { file: pipe },
          { form: 'changes', limitBytes: Number.MAX_SAFE_INTEGER, skip: OWN_TRACES },
          either,
        )
        .catch(ending),
    ]);
  }

  async clear(sandboxId: string, directory: string): Promise<void> {
    await this.#helper.do(...['runsc', 'overlay', 'bundle'].map((part) => remove(path.join(directory, part))));
    await this.#roots.release(sandboxId);
  }

  async lastWords(directory: string): Promise<string | undefined> {
    const panic = (await readFile(panicFile(directory), 'utf8').catch(() => '')).trim().split('\n')[0];
    if (panic) return `gVisor: ${panic.slice(0, 500)}`;
    const text = await readFile(path.join(directory, 'runsc.log'), 'utf8').catch(() => '');
    const lines = text.trim().split('\n').filter(Boolean);
    const last = lines.at(-1);
    if (last === undefined) return undefined;
    try {
      const record: unknown = JSON.parse(last);
      if (typeof record === 'object' && record !== null && 'msg' in record) return String(record.msg);
    } catch {
      // Not a JSON line: shown as it is.
    }
    return last.slice(-500);
  }

  /** Asks for a state and takes a refusal for success where it is reached already: to look first would cost a program more each time. */
  async #reach(state: string, verb: string, sandbox: RunningSandbox): Promise<void> {
    try {
      await this.#ask(sandbox, verb, sandbox.sandboxId);
    } catch (error) {
      if ((await this.#status(sandbox)) !== state) throw error;
    }
  }

  async #status({ directory, sandboxId }: RunningSandbox): Promise<string> {
    const { stdout } = await this.#helper.run(this.#runsc, [
      `--root=${path.join(directory, 'runsc')}`,
      'state',
      sandboxId,
    ]);
    const state: unknown = JSON.parse(stdout);
    return typeof state === 'object' && state !== null && 'status' in state ? String(state.status) : 'unknown';
  }

  async #ask({ directory }: RunningSandbox, verb: string, ...words: string[]): Promise<void> {
    const { status, stderr } = await this.#helper.run(
      this.#runsc,
      [`--root=${path.join(directory, 'runsc')}`, verb, ...words],
      { timeoutMs: SAVE_TIMEOUT_MS, okStatuses: ANY_STATUS },
    );
    if (status === 0) return;
    // It may stand behind kilobytes of what could not be written.
    if (/no space left on device/i.test(stderr))
      throw new SandbarError('no_space', `gVisor: ${verb} failed: no space left on device`);
    throw new SandbarError('internal', `gVisor: ${verb} failed: ${reasonIn(stderr)}`);
  }

  #flags(directory: string, diskSizeMb: number): string[] {
    return [
      `--root=${path.join(directory, 'runsc')}`,
      `--log=${path.join(directory, 'runsc.log')}`,
      '--log-format=json',
      `--panic-log=${panicFile(directory)}`,
      '--platform=systrap',
      '--network=sandbox',
      // The sentry's own root overlay: only it can be checkpointed whole, unlinked files included.
      `--overlay2=root:dir=${path.join(directory, 'overlay')},size=${diskSizeMb}m`,
      // sudo inside; it raises to the sandbox's own root only.
      '--allow-suid',
      '--net-raw',
      '--host-settings=ignore',
    ];
  }
}

const ANY_STATUS = Array.from({ length: 256 }, (_, status) => status);

/** What the sandbox's kernel, or the Go runtime below it, says as it ends of a fault of its own. */
function panicFile(directory: string): string {
  return path.join(directory, 'panic.log');
}

/** What runsc says of a failure, without the stack traces that it adds. */
function reasonIn(stderr: string): string {
  const lines = stderr.split('\n').map((line) => line.trim());
  const trace = lines.findIndex((line) => /^goroutine \d+|^\S+\(.*\)$/.test(line));
  const said = lines.slice(0, trace === -1 ? lines.length : trace).filter(Boolean);
  return said.join(' ').slice(0, 500) || 'no reason given';
}

function verbOf({ from }: BootRequest): string[] {
  if (from?.kind === 'memory') return ['restore', '--image-path', path.join(from.imageDir, 'memory')];
  if (from?.kind === 'files') return ['run', '--fs-restore-image-path', path.join(from.imageDir, 'files')];
  return ['run'];
}

/** Inside gVisor a capability is one of the sandbox's own kernel, so the agent may have what it needs to mount and to limit processes. */
const gvisorCapabilities = [...CAPABILITIES, 'CAP_SYS_ADMIN', 'CAP_NET_ADMIN', 'CAP_SYS_PTRACE'];
