import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../../core/command.ts';
import { SandbarError } from '../../core/errors.ts';
import type { Layout } from '../layout.ts';

/**
 * An entry that set-up leaves in /tmp of a root layer: runsc would put a memory file system over an empty /tmp, and a file there
 * would count as memory instead of disk. The node removes it from a sandbox once it is up.
 */
export const TMP_MARK = '/tmp/.sandbar';

/** The read-only layers of this machine, by name. */
export class Layers {
  readonly #layout: Layout;

  constructor(layout: Layout) {
    this.#layout = layout;
  }

  /** Directories of named layers, in the order given. */
  directories(names: readonly string[]): string[] {
    return names.map((name) => {
      const directory = this.#layout.layerDir(name);
      if (!existsSync(directory)) throw new SandbarError('internal', `layer ${name} is not on this machine`);
      return directory;
    });
  }

  /** Takes a directory over as the layer `name`, unless there is one: files by hard link where both are on one file system. */
  async import(name: string, source: string): Promise<void> {
    const target = path.dirname(this.#layout.layerDir(name));
    if (existsSync(target)) return;
    const fresh = `${target}.new`;
    await rm(fresh, { recursive: true, force: true });
    await mkdir(fresh, { recursive: true, mode: 0o755 });
    const rootfs = path.join(fresh, 'rootfs');
    try {
      await runCommand('cp', ['-al', source, rootfs], { timeoutMs: 600_000 });
    } catch {
      await rm(rootfs, { recursive: true, force: true });
      await runCommand('cp', ['-a', source, rootfs], { timeoutMs: 600_000 });
    }
    await mkdir(path.join(rootfs, '.sandbar'), { recursive: true });
    await mkdir(path.join(rootfs, 'tmp'), { recursive: true });
    await writeFile(path.join(rootfs, TMP_MARK), '');
    await rename(fresh, target);
  }
}
