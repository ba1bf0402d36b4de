import { messageOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { BuildCacheStore } from '../db/build-cache-store.ts';
import type { BuildGarbageStore } from '../db/build-garbage-store.ts';
import type { BuildStore } from '../db/build-store.ts';
import type { Layers } from '../node/disk/layers.ts';
import type { Uploads } from './uploads.ts';

export interface GarbageParts {
  garbage: BuildGarbageStore;
  builds: Pick<BuildStore, 'fail'>;
  cache: BuildCacheStore;
  uploads: Pick<Uploads, 'removeUnusedSince'>;
  layers: Pick<Layers, 'list' | 'remove'>;
  /** Layers that sandboxes and snapshots stand on. */
  layersInUse(): Promise<Set<string>>;
  /** Layers of images that were asked for lately; forgets the other images. */
  imageLayers(unusedSince: number): Promise<Set<string>>;
  removeSnapshot(snapshotId: string): Promise<unknown>;
  log: Log;
}

/** How long what nobody uses is kept. */
export interface Patience {
  /** A build that no tag points at. */
  buildMs: number;
  /** The outcome of a step, an uploaded archive, an image. */
  cacheMs: number;
  /** A layer that nothing names: a build may be about to name it. */
  layerMs: number;
}

export interface Collected {
  builds: number;
  outcomes: number;
  layers: string[];
  uploadedBytes: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
export const PATIENCE: Patience = { buildMs: DAY_MS, cacheMs: 14 * DAY_MS, layerMs: HOUR_MS };
/** For one who asks for space now. Builds under way still find what they have just made. */
export const NO_PATIENCE: Patience = { buildMs: 0, cacheMs: 0, layerMs: HOUR_MS / 6 };
const NEVER_STARTED_MS = DAY_MS;

/** Removes builds, layers and uploads that nobody uses. What a template, a sandbox, a snapshot or the cache names is not touched. */
export class TemplateGarbage {
  readonly #parts: GarbageParts;
  #timer: NodeJS.Timeout | undefined;
  #collecting: Promise<unknown> = Promise.resolve();

  constructor(parts: GarbageParts) {
    this.#parts = parts;
  }

  /** Collects now and then, for as long as the service runs. */
  start(): void {
    this.#timer = setInterval(() => {
      this.#collecting = this.collect(PATIENCE).catch((error: unknown) =>
        this.#parts.log.warn('garbage could not be collected', { error: messageOf(error) }),
      );
    }, HOUR_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#collecting;
  }

  async collect({ buildMs, cacheMs, layerMs }: Patience): Promise<Collected> {
    const { garbage, builds, cache, uploads, log } = this.#parts;
    const now = Date.now();
    for (const buildId of await garbage.neverStarted(now - NEVER_STARTED_MS))
      await builds.fail(buildId, { message: 'the build was never started' }, now);
    const unused = await garbage.deleteUnused(now - buildMs);
    for (const image of unused.images) await this.#parts.removeSnapshot(image);
    const outcomes = await cache.forgetUnusedSince(now - cacheMs);
    const uploadedBytes = await uploads.removeUnusedSince(now - cacheMs);
    const layers = await this.#removeLayers(now - layerMs, now - cacheMs);
    const collected = { builds: unused.builds, outcomes, layers, uploadedBytes };
    if (unused.builds + outcomes + layers.length + uploadedBytes > 0)
      log.info('garbage collected', { ...collected, layers: layers.length });
    return collected;
  }

  /** Layers that nothing names, without removing them. */
  async unusedLayers(madeBefore: number, imagesUnusedSince = 0): Promise<string[]> {
    const { garbage, cache, layers } = this.#parts;
    // Listed first: what is made after this is not looked at.
    const all = await layers.list();
    const named = [
      await garbage.layers(),
      await cache.layers(),
      await this.#parts.layersInUse(),
      await this.#parts.imageLayers(imagesUnusedSince),
    ];
    return all
      .filter(({ name, createdAt }) => createdAt < madeBefore && !named.some((names) => names.has(name)))
      .map(({ name }) => name);
  }

  async #removeLayers(madeBefore: number, imagesUnusedSince: number): Promise<string[]> {
    const unused = await this.unusedLayers(madeBefore, imagesUnusedSince);
    for (const name of unused) await this.#parts.layers.remove(name);
    return unused;
  }
}
