import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { runCommand } from '../../core/command.ts';
import { SandbarError } from '../../core/errors.ts';

/** What is copied where, by the rules of a Dockerfile's COPY. */
export interface CopyRequest {
  /** Path or pattern of what is copied, as the archive names it. */
  source: string;
  /** Absolute; with a slash at its end it is a directory. */
  destination: string;
  /** `user` or `user:group` of the tree; empty: as the archive has it. */
  owner: string;
  /** Up to four octal digits; empty: as the archive has it. */
  mode: string;
  /** Most bytes of content. */
  limitBytes: number;
}

const TIMEOUT_MS = 3_600_000;

/**
 * Changes to a tree of files that nobody vouches for, made by `sandbar-host` in a process whose root is that tree (host/src/in_root.rs): nothing of
 * the tree is run, and no link in it leads out. What is wrong with the request or the tree is an `invalid` error with the reason alone.
 */
export class RootEdits {
  readonly #program: string;

  constructor(hostHelper: string) {
    this.#program = hostHelper;
  }

  /** Puts files of a tar archive into the tree. */
  async copy(root: string, archive: Readable, request: CopyRequest, signal?: AbortSignal): Promise<void> {
    const { source, destination, owner, mode, limitBytes } = request;
    const words = ['in-root', root, 'copy', source, destination, owner, mode, String(limitBytes)];
    try {
      await this.#run(words, signal, archive);
    } finally {
      archive.destroy();
    }
  }

  /** Makes a directory with what is missing above it, as the owner's. True when it was not there. */
  async makeDirectory(root: string, directory: string, owner: string, signal?: AbortSignal): Promise<boolean> {
    return (await this.#run(['in-root', root, 'directory', directory, owner], signal)).includes('changed');
  }

  /** Makes a user. True when something had to be changed for that. */
  async ensureUser(root: string, name: string, options: { sudo: boolean }, signal?: AbortSignal): Promise<boolean> {
    const words = ['in-root', root, 'user', name, ...(options.sudo ? ['sudo'] : [])];
    return (await this.#run(words, signal)).includes('changed');
  }

  /** Those of the paths that lead to something. */
  async existing(root: string, paths: readonly string[], signal?: AbortSignal): Promise<Set<string>> {
    return new Set(await this.#run(['in-root', root, 'has', ...paths], signal));
  }

  /** Lets every user write into directories and all directories below them. */
  async openUp(root: string, directories: readonly string[], signal?: AbortSignal): Promise<void> {
    await this.#run(['in-root', root, 'open-up', ...directories], signal);
  }

  /** Copies what a path or pattern of one tree names into another tree. */
  async copyBetween(from: string, to: string, request: CopyRequest, signal?: AbortSignal): Promise<void> {
    const reader = spawn(this.#program, ['in-root', from, 'archive', request.source], {
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(signal !== undefined && { signal }),
    });
    let complaint = '';
    reader.stderr.on('data', (chunk: Buffer) => {
      complaint += chunk.toString('utf8').slice(0, 4000);
    });
    const ended = new Promise<number | null>((resolve) => {
      reader.on('close', resolve);
      reader.on('error', () => resolve(null));
    });
    const copied = this.copy(to, reader.stdout, request, signal).catch((error: unknown) => error);
    // The reader's own reason comes first: without it the other side has only seen an archive that ends.
    if ((await ended) !== 0 && complaint !== '') throw new SandbarError('invalid', reasonOf(complaint));
    const failure = await copied;
    if (failure !== undefined) throw failure;
  }

  /** Unpacks an archive into an empty directory as one layer. `file` may be a named pipe; a stream is read instead of it. */
  async unpack(
    directory: string,
    source: Readable | { file: string },
    options: { form: 'oci' | 'changes'; limitBytes: number; skip?: readonly string[] },
    signal?: AbortSignal,
  ): Promise<void> {
    const stream = 'file' in source ? undefined : source;
    const file = 'file' in source ? source.file : '-';
    const words = ['unpack', directory, options.form, String(options.limitBytes), file, ...(options.skip ?? [])];
    await this.#run(words, signal, stream);
  }

  async #run(words: readonly string[], signal?: AbortSignal, input?: Readable): Promise<string[]> {
    const { status, stdout, stderr } = await runCommand(this.#program, words, {
      timeoutMs: TIMEOUT_MS,
      okStatuses: [0, 1],
      ...(signal !== undefined && { signal }),
      ...(input !== undefined && { input }),
    });
    if (status !== 0) throw new SandbarError('invalid', reasonOf(stderr));
    return stdout.split('\n').filter(Boolean);
  }
}

function reasonOf(complaint: string): string {
  return complaint.trim().replace(/^sandbar-host: /, '');
}
