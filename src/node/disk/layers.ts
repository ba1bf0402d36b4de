import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../../core/command.ts';
import { errnoOf, SandbarError } from '../../core/errors.ts';
import { randomHex } from '../../core/ids.ts';
import { KeyedQueue } from '../../core/keyed-queue.ts';
import type { HostHelper } from '../host-helper.ts';
import { overlay, unmount } from '../host-orders.ts';
import type { Layout } from '../layout.ts';
import { AGENT_PATH } from '../runtime/oci-spec.ts';

/**
 * An entry that set-up leaves in /tmp of a root layer: runsc would put a memory file system over an empty /tmp, and a file there
 * would count as memory instead of disk. The node removes it from a sandbox once it is up.
 */
export const TMP_MARK = '/tmp/.sandbar';

/** What the node itself leaves in a sandbox's root, without leading slash: no part of the changes that become a layer. */
export const OWN_TRACES = [TMP_MARK.slice(1), 'run/.sandbar-cgroup', 'run/e2b', '.sandbar'];

/** The kernel takes one page of mount options. */
const MOUNT_OPTION_BYTES = 4096;
const COPY_TIMEOUT_MS = 3_600_000;

export interface LayerInfo {
  name: string;
  /** Milliseconds since 1970. */
  createdAt: number;
}

/**
 * The read-only layers of this machine, by name: directories with the owners and modes that a sandbox sees, whiteouts in overlayfs's own form. One that
 * has its name is whole: it is made under another name and renamed. Only root gets into their directory: they hold set-id programs of anybody's making.
 */
export class Layers {
  readonly #layout: Layout;
  readonly #helper: HostHelper;
  readonly #queue = new KeyedQueue();

  constructor(layout: Layout, helper: HostHelper) {
    this.#layout = layout;
    this.#helper = helper;
  }

  /** Removes what a crash left half made. Before anything else is asked of it. */
  async start(): Promise<void> {
    await this.#makeHome();
    for (const name of await readdir(this.#layout.layersDir))
      if (name.endsWith('.new') || name.endsWith('.old')) await this.#discard(path.join(this.#layout.layersDir, name));
  }

  /** Most layers that can be stacked for a sandbox or under a change. */
  get deepest(): number {
    const perLayer = Math.max(
      this.#layout.layerDir('x'.repeat(24)).length,
      path.join(this.#layout.sandboxDir('x'.repeat(21)), 'layer00').length,
    );
    return Math.min(64, Math.floor((MOUNT_OPTION_BYTES - 400) / (perLayer + 1)));
  }

  has(name: string): boolean {
    return existsSync(this.#layout.layerDir(name));
  }

  /** Directories of named layers, in the order given. */
  directories(names: readonly string[]): string[] {
    return names.map((name) => {
      const directory = this.#layout.layerDir(name);
      if (!existsSync(directory)) throw new SandbarError('internal', `layer ${name} is not on this machine`);
      return directory;
    });
  }

  async list(): Promise<LayerInfo[]> {
    const found: LayerInfo[] = [];
    for (const name of await readdir(this.#layout.layersDir).catch(() => [])) {
      if (name.includes('.')) continue;
      const { mtimeMs } = await stat(path.join(this.#layout.layersDir, name));
      found.push({ name, createdAt: mtimeMs });
    }
    return found;
  }

  /** Bytes on disk. */
  async size(name: string): Promise<number> {
    const { stdout } = await runCommand('du', ['-s', '--block-size=1', this.#layout.layerDir(name)], {
      timeoutMs: COPY_TIMEOUT_MS,
    });
    return Number.parseInt(stdout, 10);
  }

  /** Removes a layer; one that is not there is success. */
  async remove(name: string): Promise<void> {
    const target = this.#target(name);
    const doomed = `${target}.old`;
    try {
      await rename(target, doomed);
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
    await rm(doomed, { recursive: true, force: true });
  }

  /** Makes a layer by filling an empty directory. One that is there already stays as it is. A failure leaves nothing. */
  make(name: string, fill: (rootfs: string) => Promise<void>): Promise<void> {
    return this.#queue.run(name, async () => {
      if (this.has(name)) return;
      await this.#build(name, async (fresh) => {
        const rootfs = path.join(fresh, 'rootfs');
        await mkdir(rootfs, { mode: 0o755 });
        await fill(rootfs);
      });
    });
  }

  /** Makes a layer out of the changes that `edit` makes to the tree of other layers. When it says that there were none, no layer is made. */
  derive(name: string, below: readonly string[], edit: (root: string) => Promise<boolean>): Promise<boolean> {
    return this.#queue.run(name, async () => {
      let changed = false;
      await this.#build(name, async (fresh) => {
        changed = await this.#withOverlay(fresh, below, 'rootfs', edit);
        return changed;
      });
      return changed;
    });
  }

  /** Lets `work` see the tree of layers, and only see it. */
  async view<T>(layers: readonly string[], work: (root: string) => Promise<T>): Promise<T> {
    const [only] = this.directories(layers);
    if (layers.length === 1 && only !== undefined) return work(only);
    const place = this.#target(`view-${randomHex(8)}.new`);
    await mkdir(place, { mode: 0o700 });
    try {
      return await this.#withOverlay(place, layers, undefined, work);
    } finally {
      await this.#discard(place);
    }
  }

  /** The same tree in no more layers than can be stacked: what is too much is merged into one, from the bottom. */
  async fit(layers: readonly string[], room: number): Promise<string[]> {
    const most = this.deepest - room;
    if (layers.length <= most) return [...layers];
    const merged = layers.slice(0, layers.length - Math.floor(most / 2));
    const name = `flat-${createHash('sha256').update(merged.join('\n')).digest('hex').slice(0, 19)}`;
    await this.make(name, (rootfs) => this.#merge(merged, rootfs));
    return [name, ...layers.slice(merged.length)];
  }

  /** Takes a directory over as the layer `name`, unless there is one: files by hard link where both are on one file system. */
  async import(name: string, source: string): Promise<void> {
    await this.#makeHome();
    const target = this.#target(name);
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
    // The agent is mounted over it; a runtime cannot make it where this layer is one of several.
    await writeFile(path.join(rootfs, AGENT_PATH), '');
    await mkdir(path.join(rootfs, 'tmp'), { recursive: true });
    await writeFile(path.join(rootfs, TMP_MARK), '');
    await rename(fresh, target);
  }

  async #merge(layers: readonly string[], rootfs: string): Promise<void> {
    // More than can be stacked at once is merged in turns.
    const most = this.deepest - 2;
    if (layers.length > most) return this.#merge(await this.fit(layers, 2), rootfs);
    await this.view(layers, async (root) => {
      await runCommand('cp', ['-a', '--sparse=auto', '-T', root, rootfs], { timeoutMs: COPY_TIMEOUT_MS });
    });
  }

  /** `fill` may answer false: then there is nothing to keep. */
  async #build(name: string, fill: (fresh: string) => Promise<boolean | void>): Promise<void> {
    const target = this.#target(name);
    const fresh = `${target}.new`;
    await this.#discard(fresh);
    await mkdir(fresh, { recursive: true, mode: 0o755 });
    try {
      if ((await fill(fresh)) === false) await this.#discard(fresh);
      else await rename(fresh, target);
    } catch (error) {
      await this.#discard(fresh);
      throw error;
    }
  }

  async #withOverlay<T>(
    place: string,
    layers: readonly string[],
    upper: string | undefined,
    work: (root: string) => Promise<T>,
  ): Promise<T> {
    const root = path.join(place, 'root');
    const workdir = path.join(place, 'work');
    await mkdir(root);
    // lowerdir names the topmost first.
    const lower = `lowerdir=${this.directories(layers).reverse().join(':')}`;
    if (upper !== undefined) {
      await mkdir(path.join(place, upper), { mode: 0o755 });
      await mkdir(workdir);
    }
    const above = upper === undefined ? '' : `,upperdir=${path.join(place, upper)},workdir=${workdir}`;
    await this.#helper.do(overlay(root, `${lower}${above}`));
    try {
      return await work(root);
    } finally {
      await this.#helper.do(unmount(root));
      await rm(root, { recursive: true, force: true });
      await rm(workdir, { recursive: true, force: true });
    }
  }

  async #discard(place: string): Promise<void> {
    if (!existsSync(place)) return;
    await this.#helper.do(unmount(path.join(place, 'root')));
    await rm(place, { recursive: true, force: true });
  }

  async #makeHome(): Promise<void> {
    await mkdir(this.#layout.layersDir, { recursive: true, mode: 0o700 });
    await chmod(this.#layout.layersDir, 0o700);
  }

  #target(name: string): string {
    return path.join(this.#layout.layersDir, name);
  }
}
