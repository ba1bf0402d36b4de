import { createHash } from 'node:crypto';
import { messageOf, SandbarError } from '../core/errors.ts';
import type { BuildCacheStore } from '../db/build-cache-store.ts';
import type { ImagePull, PulledImage } from '../node/image-pull.ts';
import { BuildFailure } from './build/failure.ts';
import type { Saying } from './build/log.ts';
import type { BuildSandboxParts } from './build/sandbox.ts';
import { SharedWork } from './build/shared-work.ts';
import type { RegistryCredentials } from './contract.ts';
import { setUpGuest, setUpKey } from './guest-setup.ts';
import { loginOf } from './registry-credentials.ts';

export interface ImageParts extends BuildSandboxParts {
  puller: ImagePull;
  cache: BuildCacheStore;
  timeoutMs: number;
}

interface ImageOptions {
  force: boolean;
  say: (saying: Saying) => void;
  signal: AbortSignal;
}

/** Images of registries as bases of templates. The registry is asked every time, so that a tag that moved is noticed; what is here is not fetched again. */
export class TemplateImages {
  readonly #parts: ImageParts;
  readonly #shared = new SharedWork<PulledImage, Saying>();

  constructor(parts: ImageParts) {
    this.#parts = parts;
  }

  async fromImage(
    image: string,
    credentials: RegistryCredentials | undefined,
    options: ImageOptions,
  ): Promise<PulledImage> {
    // Who shows other credentials asks for himself.
    const asker = createHash('sha256')
      .update(JSON.stringify(credentials ?? null))
      .digest('hex');
    const begin = async (say: (saying: Saying) => void, signal: AbortSignal) => {
      const pulled = await this.#pull(image, credentials, say, signal);
      const added = await this.#setUp(pulled.layers, options.force, say, signal);
      return { ...pulled, layers: [...pulled.layers, ...added] };
    };
    return this.#shared.do(`${image} ${asker} ${options.force}`, begin, options.say, options.signal);
  }

  async #pull(
    image: string,
    credentials: RegistryCredentials | undefined,
    say: (saying: Saying) => void,
    signal: AbortSignal,
  ): Promise<PulledImage> {
    const { puller, timeoutMs, machine } = this.#parts;
    try {
      const login = credentials && (await loginOf(credentials, signal));
      const pulled = await puller.pull(image, {
        ...(login !== undefined && { credentials: login }),
        say: (message) => say({ level: 'info', message }),
        timeoutMs,
        signal,
      });
      return { ...pulled, layers: await machine.layers.fit(pulled.layers, 4) };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof SandbarError && error.kind === 'invalid')
        throw new BuildFailure(messageOf(error), 'base', { cause: error });
      throw error;
    }
  }

  async #setUp(
    layers: string[],
    force: boolean,
    say: (saying: Saying) => void,
    signal: AbortSignal,
  ): Promise<string[]> {
    const { cache, machine } = this.#parts;
    const key = setUpKey(layers);
    const known = force ? undefined : await cache.find(key, Date.now());
    if (known?.every((layer) => machine.layers.has(layer))) return known;
    const added = await setUpGuest(this.#parts, layers, say, signal);
    await cache.put(key, added, Date.now());
    return added;
  }
}
