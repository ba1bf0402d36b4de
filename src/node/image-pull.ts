import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, statfs, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Transform } from 'node:stream';
import { runCommand } from '../core/command.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { openExpanded } from '../core/expanded-file.ts';
import { randomHex } from '../core/ids.ts';
import type { Layers } from './disk/layers.ts';
import type { RootEdits } from './disk/root-edits.ts';
import { type ImageReference, parseImageReference } from './image-reference.ts';

/** An image as layers of this machine. */
export interface PulledImage {
  /** Lowest first. */
  layers: string[];
  env: Record<string, string>;
}

export interface PullOptions {
  credentials?: { username: string; password: string };
  /** Hears what is going on. */
  say: (message: string) => void;
  timeoutMs: number;
  signal: AbortSignal;
}

/** What is kept of an image whose layers are here, by the digest of its manifest. */
interface KnownImage extends PulledImage {
  image: string;
}

const SPARE_BYTES = 1024 * 1024 * 1024;

/**
 * Fetches images with skopeo. A layer is known by the digest of its content, so that images share what they have in common; one that is here is
 * not unpacked again, and an image whose digest is known is not fetched again.
 */
export class ImagePull {
  readonly #directory: string;
  readonly #layers: Layers;
  readonly #edits: RootEdits;

  /** `directory` keeps the notes about images, and what is being fetched. */
  constructor(directory: string, layers: Layers, edits: RootEdits) {
    this.#directory = directory;
    this.#layers = layers;
    this.#edits = edits;
  }

  /** Removes what a crash left half fetched. */
  async start(): Promise<void> {
    await rm(path.join(this.#directory, 'fetching'), { recursive: true, force: true });
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
  }

  /** Failures that are about the image or its registry are `invalid`, with a message for whoever asked for it. */
  async pull(image: string, options: PullOptions): Promise<PulledImage> {
    const reference = parseImageReference(image);
    const work = path.join(this.#directory, 'fetching', randomHex(8));
    await mkdir(work, { recursive: true, mode: 0o700 });
    try {
      const skopeo = await this.#skopeo(reference, work, options);
      const digest = await this.#digestOf(skopeo, reference);
      const known = await this.#known(digest);
      if (known !== undefined) return known;
      options.say(`fetching ${reference.text}@${digest.slice(0, 19)}`);
      await skopeo(['copy', '--quiet', `docker://${reference.text}`, `oci:${path.join(work, 'image')}:image`]);
      const pulled = await this.#unpack(path.join(work, 'image'), options);
      await this.#note(digest, { ...pulled, image: reference.text });
      return pulled;
    } finally {
      await rm(work, { recursive: true, force: true });
    }
  }

  /** Layers of the images that were asked for since a time. The others are forgotten. */
  async layersUsedSince(time: number): Promise<Set<string>> {
    const used: string[] = [];
    for (const name of await readdir(this.#directory).catch(() => [])) {
      if (!name.endsWith('.json')) continue;
      const file = path.join(this.#directory, name);
      if ((await stat(file)).mtimeMs < time) await rm(file, { force: true });
      else used.push(...(JSON.parse(await readFile(file, 'utf8')) as KnownImage).layers);
    }
    return new Set(used);
  }

  /** The program with the options of one registry. Credentials go by a file: a command line can be read by others. */
  async #skopeo(reference: ImageReference, work: string, options: PullOptions) {
    const { credentials, timeoutMs, signal } = options;
    const authFile = path.join(work, 'auth.json');
    const auth = credentials && Buffer.from(`${credentials.username}:${credentials.password}`).toString('base64');
    const auths = auth === undefined ? {} : { [reference.registry]: { auth } };
    await writeFile(authFile, JSON.stringify({ auths }), { mode: 0o600 });
    return async ([verb = '', ...words]: string[]): Promise<string> => {
      const verify = verb === 'copy' ? '--src-tls-verify' : '--tls-verify';
      const args = [
        // When the service dies this must not go on writing.
        ...['--pdeathsig', 'KILL', '--', 'skopeo', '--insecure-policy', `--tmpdir=${work}`, verb],
        ...[`--authfile=${authFile}`, `${verify}=${!reference.isLocal}`, '--retry-times=2', ...words],
      ];
      try {
        return (await runCommand('setpriv', args, { timeoutMs, signal })).stdout;
      } catch (error) {
        signal.throwIfAborted();
        throw explained(reference.text, error);
      }
    };
  }

  async #digestOf(skopeo: (words: string[]) => Promise<string>, reference: ImageReference): Promise<string> {
    const raw = await skopeo(['inspect', '--raw', `docker://${reference.text}`]);
    return `sha256:${createHash('sha256').update(raw).digest('hex')}`;
  }

  async #unpack(layout: string, options: PullOptions): Promise<PulledImage> {
    const blob = (digest: string) => path.join(layout, 'blobs', ...digest.split(':'));
    const json = async (file: string) => JSON.parse(await readFile(file, 'utf8'));
    const index: { manifests: { digest: string }[] } = await json(path.join(layout, 'index.json'));
    const manifest: { config: { digest: string }; layers: { digest: string }[] } = await json(
      blob(index.manifests[0]?.digest ?? ''),
    );
    const config: { rootfs: { diff_ids: string[] }; config?: { Env?: string[] | null } } = await json(
      blob(manifest.config.digest),
    );
    const layers: string[] = [];
    for (const [at, diffId] of config.rootfs.diff_ids.entries()) {
      const name = `oci-${diffId.replace(/^sha256:/, '').slice(0, 20)}`;
      const file = blob(manifest.layers[at]?.digest ?? '');
      if (!this.#layers.has(name)) options.say(`unpacking layer ${at + 1} of ${config.rootfs.diff_ids.length}`);
      await this.#layers.make(name, (rootfs) => this.#unpackLayer(file, diffId, rootfs, options.signal));
      await rm(file, { force: true });
      // The same layer twice in a stack is refused by the kernel, and the upper one hides the lower anyway.
      if (layers.includes(name)) layers.splice(layers.indexOf(name), 1);
      layers.push(name);
    }
    return { layers, env: environmentOf(config.config?.Env ?? []) };
  }

  async #unpackLayer(file: string, diffId: string, rootfs: string, signal: AbortSignal): Promise<void> {
    const { bavail, bsize } = await statfs(this.#directory);
    const content = await openExpanded(file);
    const checked = checksum(diffId);
    content.on('error', (error) => checked.destroy(error));
    content.pipe(checked);
    const limitBytes = Math.max(0, bavail * bsize - SPARE_BYTES);
    await this.#edits.unpack(rootfs, checked, { form: 'oci', limitBytes }, signal);
  }

  async #known(digest: string): Promise<PulledImage | undefined> {
    const file = this.#noteOf(digest);
    if (!existsSync(file)) return undefined;
    const { layers, env }: KnownImage = JSON.parse(await readFile(file, 'utf8'));
    const now = new Date();
    await utimes(file, now, now);
    return layers.every((layer) => this.#layers.has(layer)) ? { layers, env } : undefined;
  }

  async #note(digest: string, known: KnownImage): Promise<void> {
    const file = this.#noteOf(digest);
    await writeFile(`${file}.new`, JSON.stringify(known));
    await rename(`${file}.new`, file);
  }

  #noteOf(digest: string): string {
    return path.join(this.#directory, `${digest.replace(':', '-')}-${process.arch}.json`);
  }
}

/** Passes bytes on and fails at the end when they were not what the digest says. */
function checksum(digest: string): Transform {
  const hash = createHash('sha256');
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      done(null, chunk);
    },
    flush(done) {
      const right = `sha256:${hash.digest('hex')}` === digest;
      done(right ? null : new SandbarError('invalid', `a layer of the image is damaged: it is not ${digest}`));
    },
  });
}

function environmentOf(lines: readonly string[]): Record<string, string> {
  const entries = lines.map((line): [string, string] => {
    const equals = line.indexOf('=');
    return equals === -1 ? [line, ''] : [line.slice(0, equals), line.slice(equals + 1)];
  });
  return Object.fromEntries(entries.filter(([name]) => name !== ''));
}

const EXPLANATIONS: [pattern: RegExp, text: (image: string) => string][] = [
  [
    /manifest unknown|name unknown|repository name not known|not found: manifest|StatusCode: 404/i,
    (image) => `image '${image}' was not found in its registry`,
  ],
  [
    /unauthorized|authentication required|denied|invalid username\/password|StatusCode: 40[13]/i,
    (image) => `access to image '${image}' was refused: check its name and the registry credentials`,
  ],
  [
    /no image found in (image index|manifest list)|choosing image instance/i,
    (image) => `image '${image}' is not made for this machine (${process.arch})`,
  ],
];

/** skopeo's complaint in the words of whoever asked for an image. */
function explained(image: string, error: unknown): SandbarError {
  const message = messageOf(error);
  const said = /level=fatal msg="((?:[^"\\]|\\.)*)"/.exec(message)?.[1]?.replaceAll('\\"', '"') ?? message;
  const known = EXPLANATIONS.find(([pattern]) => pattern.test(said))?.[1](image);
  if (known !== undefined) return new SandbarError('invalid', known, { cause: error });
  if (/no such host|connection refused|i\/o timeout|no route|TLS|tls:|x509|server misbehaving|EOF/i.test(said))
    return new SandbarError('invalid', `the registry of image '${image}' cannot be reached: ${tail(said)}`, {
      cause: error,
    });
  if (/took longer than/.test(message))
    return new SandbarError('invalid', `fetching image '${image}' took too long`, { cause: error });
  return new SandbarError('invalid', `image '${image}' cannot be fetched: ${tail(said)}`, { cause: error });
}

function tail(said: string): string {
  return said.split(': ').slice(-3).join(': ').slice(0, 300);
}
