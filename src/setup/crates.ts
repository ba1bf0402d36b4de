import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import type { Progress } from './progress.ts';

export interface LockedCrate {
  name: string;
  version: string;
  /** SHA-256 of the archive, hex. */
  checksum: string;
}

/** From this version on, cargo fetches only what it needs; before, it clones the whole index of crates.io with git. */
const SPARSE_SINCE_MINOR = 68;
const CRATES = 'https://static.crates.io/crates';

/**
 * Spares an old cargo (Debian 12's, Ubuntu 22.04's) the clone of the crates.io index: puts the few crates that the locks name into
 * a directory, checked, and points cargo at it by a configuration file at the root of the project.
 */
export async function setUpCrates(cacheDir: string, root: string, cargo: string, progress: Progress): Promise<void> {
  const configFile = path.join(root, '.cargo/config.toml');
  // Once the file is there cargo looks nowhere else, so it must find every crate of the present locks.
  if (!existsSync(configFile) && (await cargoMinor(cargo)) >= SPARSE_SINCE_MINOR) return;
  const directory = path.join(cacheDir, 'crates');
  const locks = await Promise.all(
    ['agent', 'host'].map((crate) => readFile(path.join(root, crate, 'Cargo.lock'), 'utf8')),
  );
  const missing = locks.flatMap(readLock).filter((crate) => !existsSync(path.join(directory, directoryOf(crate))));
  try {
    if (missing.length > 0) {
      await mkdir(directory, { recursive: true });
      progress.announce(`Fetching ${missing.length} crates from crates.io`);
      for (const crate of missing) await fetchCrate(crate, directory);
    }
    await mkdir(path.dirname(configFile), { recursive: true });
    await writeFile(configFile, cargoConfig(directory));
  } catch (error) {
    // Without it cargo goes its own way, slower, and says itself what it cannot reach.
    await rm(configFile, { force: true });
    progress.note(`not this way: ${messageOf(error)}`);
  }
}

/** The packages of a Cargo.lock that come from crates.io. */
export function readLock(text: string): LockedCrate[] {
  return text.split('[[package]]').flatMap((block) => {
    const field = (name: string) => new RegExp(`^${name} = "([^"]+)"$`, 'm').exec(block)?.[1];
    const [name, version, checksum] = [field('name'), field('version'), field('checksum')];
    if (name === undefined || version === undefined || checksum === undefined) return [];
    return field('source')?.startsWith('registry+') ? [{ name, version, checksum }] : [];
  });
}

async function fetchCrate(crate: LockedCrate, directory: string): Promise<void> {
  const url = `${CRATES}/${crate.name}/${crate.name}-${crate.version}.crate`;
  const answer = await fetch(url, { signal: AbortSignal.timeout(60_000) }).catch((error: Error) => {
    throw new SandbarError('unavailable', `${url} cannot be reached (${messageOf(error.cause ?? error)})`, {
      cause: error,
    });
  });
  if (!answer.ok) throw new SandbarError('unavailable', `${url} answered ${answer.status}`);
  const archive = Buffer.from(await answer.arrayBuffer());
  if (createHash('sha256').update(archive).digest('hex') !== crate.checksum)
    throw new SandbarError('unavailable', `${url} does not have the checksum that Cargo.lock names`);

  const scratch = await mkdtemp(path.join(directory, '.making-'));
  try {
    await runCommand('tar', ['-xz', '--no-same-owner', '-C', scratch], { input: archive });
    const unpacked = path.join(scratch, directoryOf(crate));
    const checksums = { files: {}, package: crate.checksum };
    await writeFile(path.join(unpacked, '.cargo-checksum.json'), JSON.stringify(checksums));
    await rename(unpacked, path.join(directory, directoryOf(crate)));
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

function directoryOf(crate: LockedCrate): string {
  return `${crate.name}-${crate.version}`;
}

function cargoConfig(directory: string): string {
  return `# Written by set-up, because this machine's cargo is too old to fetch single crates.
[source.crates-io]
replace-with = "sandbar-cache"

[source.sandbar-cache]
directory = "${directory}"
`;
}

/** The minor version of a cargo 1.x; 0 when it does not run. */
export async function cargoMinor(cargo: string): Promise<number> {
  const { stdout } = await runCommand(cargo, ['--version'], { okStatuses: [0, 1] });
  return Number(/^cargo 1\.(\d+)/.exec(stdout)?.[1] ?? 0);
}
