import { newOperationId } from '../../agent/client.ts';
import type { ProcessEnd } from '../../agent/contract.ts';
import { isAgentError } from '../../agent/errors.ts';
import type { RuntimeName } from '../../core/config.ts';
import { messageOf } from '../../core/errors.ts';
import { newSandboxId } from '../../core/ids.ts';
import { fromNode, type NodeClient } from '../../node/client.ts';
import { Lines } from './lines.ts';
import type { BuildMachine } from './machine.ts';

export interface BuildResources {
  cpuCount: number;
  memoryMb: number;
  diskSizeMb: number;
}

export interface BuildSandboxParts {
  node: NodeClient;
  machine: BuildMachine;
  runtime: RuntimeName;
  /** Why a sandbox ended by itself, where that is known. */
  whyEnded(sandboxId: string): string | undefined;
}

/** A command in a build's sandbox. */
export interface BuildCommand {
  /** What a login shell reads, or the words of a program. */
  command: string | readonly string[];
  user: string;
  workdir: string;
  env: Record<string, string>;
  timeoutMs: number;
  /** Hears each line of output. */
  onLine?: (stream: 'stdout' | 'stderr', line: string) => void;
}

const PIDS_MAX = 2048;
const WAIT_MS = 30_000;

/** A sandbox that a build makes for itself. No row stands for it: no list shows it, and after a crash it is cleared away as nobody's. */
export class BuildSandbox {
  readonly id = newSandboxId();
  readonly #parts: BuildSandboxParts;

  private constructor(parts: BuildSandboxParts) {
    this.#parts = parts;
  }

  static async boot(
    parts: BuildSandboxParts,
    layers: string[],
    resources: BuildResources,
    owner: { templateId: string; buildId: string },
    signal: AbortSignal,
  ): Promise<BuildSandbox> {
    const sandbox = new BuildSandbox(parts);
    try {
      await parts.node.createSandbox(
        {
          sandboxId: sandbox.id,
          runtime: parts.runtime,
          ...owner,
          rootFs: { layers },
          resources: { ...resources, pidsMax: PIDS_MAX },
          guest: { env: {}, defaultUser: 'root', defaultWorkdir: '/' },
          snapshotId: '',
        },
        { signal },
      );
    } catch (error) {
      signal.throwIfAborted();
      throw fromNode(error);
    }
    return sandbox;
  }

  /** Runs a command to its end. Throws when it could not be started or its sandbox ended under it. */
  async run(command: BuildCommand, signal: AbortSignal): Promise<ProcessEnd> {
    const subscriber = 1 + Math.floor(Math.random() * 1e9);
    const pid = await this.start(command, signal, subscriber);
    return this.follow(pid, subscriber, command.onLine ?? (() => undefined), signal);
  }

  /** Starts a command and gives its pid. */
  async start(command: BuildCommand, signal: AbortSignal, subscriber?: number): Promise<number> {
    const { user, workdir, env, timeoutMs } = command;
    const words = typeof command.command === 'string' ? loginShell(command.command, env) : command.command;
    try {
      return await this.#agent().start(
        {
          user,
          cmd: words[0] ?? '',
          args: words.slice(1),
          env,
          cwd: workdir,
          stdin: false,
          ...(timeoutMs !== Number.POSITIVE_INFINITY && { deadlineMs: timeoutMs }),
          operationId: newOperationId(),
          ...(subscriber !== undefined && { subscriber }),
        },
        signal,
      );
    } catch (error) {
      signal.throwIfAborted();
      if (isAgentError(error, 'UNKNOWN_USER')) throw new Error(`unauthenticated: invalid username: '${user}'`);
      if (isAgentError(error, 'CWD')) throw new Error(`the working directory '${workdir}' does not exist`);
      throw this.#explain(error);
    }
  }

  /** Hears the output of a process to its end. */
  async follow(
    pid: number,
    subscriber: number,
    onLine: (stream: 'stdout' | 'stderr', line: string) => void,
    signal: AbortSignal,
  ): Promise<ProcessEnd> {
    const lines = {
      stdout: new Lines((line) => onLine('stdout', line)),
      stderr: new Lines((line) => onLine('stderr', line)),
    };
    for (let offset = 0; ; ) {
      const batch = await this.#agent()
        .readOutput({ process: { pid }, subscriber, offset, length: 0, waitMs: WAIT_MS, replay: false }, signal)
        .catch(async (error: unknown) => {
          // A reader that went away without a word would hold the process back for a while.
          if (signal.aborted)
            await this.#agent()
              .unsubscribe(pid, subscriber)
              .catch(() => undefined);
          signal.throwIfAborted();
          throw this.#explain(error);
        });
      for (const { stream, data } of batch.chunks) lines[stream === 'stderr' ? 'stderr' : 'stdout'].push(data);
      offset = batch.nextOffset;
      if (batch.end === undefined) continue;
      lines.stdout.end();
      lines.stderr.end();
      return batch.end;
    }
  }

  /** Takes its changes as a layer; after that it is only to be destroyed. */
  async exportLayer(layer: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#parts.machine.exportLayer(this.id, layer, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw this.#explain(error);
    }
  }

  /** Writes it down as it runs. `start` and `ready` are done again where a snapshot cannot hold running processes. */
  async writeSnapshot(
    snapshotId: string,
    start: Pick<BuildCommand, 'user' | 'workdir' | 'env'> & { command: string; ready: string | null },
    signal: AbortSignal,
  ): Promise<void> {
    const { command, ready, user, workdir, env } = start;
    const words = loginShell(command, env);
    const readyWords = ready === null ? [] : loginShell(ready, env);
    try {
      await this.#parts.node.snapshotSandbox(
        { sandboxId: this.id, snapshotId, start: { words, readyWords, user, workdir, env } },
        { signal },
      );
    } catch (error) {
      signal.throwIfAborted();
      throw fromNode(error);
    }
  }

  async destroy(): Promise<void> {
    await this.#parts.node.destroySandbox({ sandboxId: this.id });
  }

  #agent() {
    return this.#parts.machine.agent(this.id);
  }

  #explain(error: unknown): Error {
    const why = this.#parts.whyEnded(this.id);
    return new Error(why === undefined ? messageOf(error) : `the sandbox of the build ended: ${why}`, { cause: error });
  }
}

/** The login shell reads profiles that set PATH; the variables of the build come after them, or they would be lost. */
function loginShell(command: string, env: Record<string, string>): string[] {
  const exports = Object.entries(env)
    .filter(([name]) => /^[A-Za-z_]\w*$/.test(name))
    .map(([name, value]) => ` ${name}=${quote(value)}`);
  const prologue = exports.length === 0 ? '' : `export${exports.join('')}; `;
  return ['/bin/bash', '-l', '-c', `${prologue}${command}`];
}

export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** How an end that was no success is told. */
export function endOf(end: ProcessEnd, timeoutMs: number): string | undefined {
  if (end.deadlineHit) return `took longer than ${Math.round(timeoutMs / 1000)} s and was killed`;
  if (end.signal !== 0) return `signal: ${end.signal === 9 ? 'killed' : `number ${end.signal}`}`;
  return end.exitCode === 0 ? undefined : `exit status ${end.exitCode}`;
}
