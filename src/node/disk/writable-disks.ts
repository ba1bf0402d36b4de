import { mkdir, open, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../../core/command.ts';
import { KeyedQueue } from '../../core/keyed-queue.ts';
import type { HostHelper } from '../host-helper.ts';
import {
  copyFile,
  type IdRange,
  idmap,
  makeDirectory,
  mountImage,
  type Order,
  remove,
  rename as renameOrder,
  unmount,
} from '../host-orders.ts';

/** Kept of each size that is in use. */
const SPARES = 2;
const SPARE_AFTER_MS = 200;
/**
 * Sandboxes live too shortly for a thread that writes zeros over unused inodes. And ext4 brings a file to disk as soon as it is closed if it was emptied
 * before, or put in the place of another, in case the machine should fail: that is of no use to a sandbox that runs, which ends with the machine, and a
 * paused one is synced. It halves what a large upload gives.
 */
const MOUNT_OPTIONS = 'discard,noinit_itable,noauto_da_alloc';

/**
 * The writable part of a container's disk: a file that holds an ext4 file system of just the allowed size. Full is ENOSPC inside and nothing outside, `df` is
 * right, and it goes away with one unlink however many files are in it. The file is sparse: it takes what is written.
 */
export class WritableDisks {
  readonly #directory: string;
  readonly #helper: HostHelper;
  readonly #queue = new KeyedQueue();
  /** Copies of the empty ones, made ahead. */
  readonly #spares = new Map<number, string[]>();
  #lastSpare = 0;

  /** `directory` keeps one empty file system for each size, to copy from. */
  constructor(directory: string, helper: HostHelper) {
    this.#directory = directory;
    this.#helper = helper;
  }

  /** Removes what an earlier run had made ahead. */
  async start(): Promise<void> {
    await rm(this.#sparesDirectory, { recursive: true, force: true });
    await mkdir(this.#sparesDirectory, { recursive: true });
  }

  /** What makes an empty disk in a sandbox's directory. */
  async make(sandboxDirectory: string, sizeMb: number): Promise<Order> {
    const spare = this.#spares.get(sizeMb)?.pop();
    this.#makeSpareLater(sizeMb);
    const image = imageOf(sandboxDirectory);
    return spare === undefined ? copyFile(await this.#empty(sizeMb), image) : renameOrder(spare, image);
  }

  /** What copies the disk of one directory into another. */
  copy(from: string, to: string): Order {
    return copyFile(imageOf(from), imageOf(to));
  }

  /**
   * What mounts the disk of a sandbox at `<directory>/disk`, with `upper` and `work` for an overlay. Files keep the ids that the sandbox itself sees, and the
   * mount maps them into its range: so a disk can be copied to a sandbox with another range, or come back after a reboot with another.
   * A fresh one has not been mounted before.
   */
  mount(sandboxDirectory: string, ids: IdRange, options: { isFresh: boolean }): Order[] {
    const raw = rawOf(sandboxDirectory);
    const target = path.join(sandboxDirectory, 'disk');
    return [
      makeDirectory(raw),
      makeDirectory(target),
      mountImage(imageOf(sandboxDirectory), raw, MOUNT_OPTIONS, options),
      idmap(raw, target, ids, 'rw'),
    ];
  }

  /** What takes away the mount with the sandbox's ids: an overlay that was made of it keeps what it needs. */
  unmountMapped(sandboxDirectory: string): Order {
    return unmount(path.join(sandboxDirectory, 'disk'));
  }

  unmount(sandboxDirectory: string): Order[] {
    return [this.unmountMapped(sandboxDirectory), unmount(rawOf(sandboxDirectory))];
  }

  remove(sandboxDirectory: string): Order {
    return remove(imageOf(sandboxDirectory));
  }

  get #sparesDirectory(): string {
    return path.join(this.#directory, 'spare');
  }

  /** Not at once: whoever took one is still booting. */
  #makeSpareLater(sizeMb: number): void {
    setTimeout(() => void this.#makeSpare(sizeMb).catch(() => undefined), SPARE_AFTER_MS).unref();
  }

  /** A spare that cannot be made is not missed: the disk is copied when it is wanted, and fails then. */
  async #makeSpare(sizeMb: number): Promise<void> {
    const spares = this.#spares.get(sizeMb) ?? [];
    this.#spares.set(sizeMb, spares);
    if (spares.length >= SPARES) return;
    const file = path.join(this.#sparesDirectory, `${sizeMb}-${this.#lastSpare++}.ext4`);
    try {
      await this.#helper.do(copyFile(await this.#empty(sizeMb), file));
      spares.push(file);
    } catch (error) {
      await this.#helper.do(remove(file));
      throw error;
    }
  }

  /** An empty file system of the size, with the two directories of an overlay, made once. */
  #empty(sizeMb: number): Promise<string> {
    const file = path.join(this.#directory, `overlay-${sizeMb}.ext4`);
    return this.#queue.run(file, async () => {
      if (await exists(file)) return file;
      await mkdir(this.#directory, { recursive: true });
      const fresh = `${file}.new`;
      await rm(fresh, { force: true });
      const handle = await open(fresh, 'w');
      await handle.truncate(sizeMb * 1024 * 1024);
      await handle.close();
      const content = path.join(this.#directory, `content-${sizeMb}`);
      for (const part of ['upper', 'work']) await mkdir(path.join(content, part), { recursive: true, mode: 0o755 });
      const journalMb = sizeMb >= 256 ? 4 : 1;
      await runCommand('mkfs.ext4', [
        '-q',
        '-F',
        ...['-m', '0'],
        ...['-b', '4096'],
        ...(sizeMb >= 64 ? ['-J', `size=${Math.max(4, journalMb)}`] : ['-O', '^has_journal']),
        ...['-O', '^resize_inode,sparse_super2'],
        ...['-E', 'lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0'],
        ...['-d', content],
        fresh,
      ]);
      await rm(content, { recursive: true });
      await rename(fresh, file);
      return file;
    });
  }
}

/** Where the file system of a sandbox's disk is seen with the ids that are in it. */
export function rawOf(sandboxDirectory: string): string {
  return path.join(sandboxDirectory, 'raw');
}

function imageOf(sandboxDirectory: string): string {
  return path.join(sandboxDirectory, 'disk.ext4');
}

async function exists(file: string): Promise<boolean> {
  try {
    await (await open(file)).close();
    return true;
  } catch {
    return false;
  }
}
