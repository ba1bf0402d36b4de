import { createHash } from 'node:crypto';
import { mkdir, rmdir } from 'node:fs/promises';
import path from 'node:path';
import { KeyedQueue } from '../../core/keyed-queue.ts';
import type { HostHelper } from '../host-helper.ts';
import { overlay, unmount } from '../host-orders.ts';

/**
 * Read-only merged views of template layers, one for each distinct stack, shared by every sandbox that runs on it (and their page cache
 * with them). A view lives as long as a sandbox uses it.
 */
export class SharedRoots {
  readonly #directory: string;
  readonly #helper: HostHelper;
  readonly #queue = new KeyedQueue();
  /** Sandboxes that use each view, by the view's directory. */
  readonly #users = new Map<string, Set<string>>();

  constructor(directory: string, helper: HostHelper) {
    this.#directory = directory;
    this.#helper = helper;
  }

  /** The directory to use as root. A single layer is its own view. */
  async acquire(user: string, layers: readonly string[]): Promise<string> {
    const [first] = layers;
    if (first !== undefined && layers.length === 1) return first;
    const view = this.#viewOf(layers);
    await this.#queue.run(view, async () => {
      const users = this.#users.get(view);
      if (users !== undefined) {
        users.add(user);
        return;
      }
      await mkdir(view, { recursive: true });
      // lowerdir names the topmost first.
      await this.#helper.do(unmount(view), overlay(view, `lowerdir=${[...layers].reverse().join(':')}`));
      this.#users.set(view, new Set([user]));
    });
    return view;
  }

  /** Notes that a sandbox which outlived the service uses the view of these layers, which is mounted still. */
  adopt(user: string, layers: readonly string[]): void {
    if (layers.length === 1) return;
    const view = this.#viewOf(layers);
    const users = this.#users.get(view) ?? new Set();
    users.add(user);
    this.#users.set(view, users);
  }

  async release(user: string): Promise<void> {
    for (const [view, users] of this.#users) {
      if (!users.has(user)) continue;
      await this.#queue.run(view, async () => {
        users.delete(user);
        if (users.size > 0) return;
        this.#users.delete(view);
        await this.#helper.do(unmount(view));
        await rmdir(view);
      });
    }
  }

  /** Directories of views that are in use. */
  get inUse(): ReadonlySet<string> {
    return new Set(this.#users.keys());
  }

  #viewOf(layers: readonly string[]): string {
    return path.join(this.#directory, createHash('sha256').update(layers.join('\n')).digest('hex').slice(0, 20));
  }
}
