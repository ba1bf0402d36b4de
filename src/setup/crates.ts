import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';

/** From this version on, cargo fetches only what it needs; before, it clones the whole index of crates.io with git. */
export const SINGLE_CRATES_SINCE = 68;

/** Where Debian's packages of crates put them. */
const PACKAGED_CRATES = '/usr/share/cargo/registry';
const HEADER =
  "# Written by set-up: this machine's cargo is too old to fetch single crates, and takes those of its packages.";

/** Points an old cargo (Debian 12's) at the crates that its distribution packages, if they are all there; any other goes its own way. */
export async function setUpCrates(root: string, cargo: string, packaged = PACKAGED_CRATES): Promise<void> {
  const configFile = path.join(root, '.cargo/config.toml');
  const isOld = (await cargoMinor(cargo)) < SINGLE_CRATES_SINCE;
  if (isOld && (await hasEveryCrate(root, packaged))) {
    await mkdir(path.dirname(configFile), { recursive: true });
    await writeFile(configFile, cargoConfig(packaged));
  } else if (await isOurs(configFile)) await rm(configFile);
}

async function hasEveryCrate(root: string, packaged: string): Promise<boolean> {
  const locks = (await readdir(root)).map((crate) => path.join(root, crate, 'Cargo.lock')).filter(existsSync);
  const texts = await Promise.all(locks.map((lock) => readFile(lock, 'utf8')));
  return texts.flatMap(lockedCrates).every((crate) => existsSync(path.join(packaged, crate)));
}

/** The packages of a Cargo.lock that come from a registry, `name-version`. */
export function lockedCrates(text: string): string[] {
  return text.split('[[package]]').flatMap((block) => {
    const field = (name: string) => new RegExp(`^${name} = "([^"]+)"$`, 'm').exec(block)?.[1];
    return field('source')?.startsWith('registry+') ? [`${field('name')}-${field('version')}`] : [];
  });
}

async function isOurs(configFile: string): Promise<boolean> {
  return existsSync(configFile) && (await readFile(configFile, 'utf8')).startsWith('# Written by set-up');
}

function cargoConfig(directory: string): string {
  return `${HEADER}
[source.crates-io]
replace-with = "packaged"

[source.packaged]
directory = "${directory}"
`;
}

/** The minor version of a cargo 1.x; 0 when it does not run. */
export async function cargoMinor(cargo: string): Promise<number> {
  const { stdout } = await runCommand(cargo, ['--version'], { okStatuses: [0, 1] });
  return Number(/^cargo 1\.(\d+)/.exec(stdout)?.[1] ?? 0);
}
