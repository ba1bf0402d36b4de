import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { ArtifactStore, removeTree } from './artifact-store.ts';
import { findProgram } from './find-program.ts';
import type { Host } from './host.ts';
import { PrivateApt } from './private-apt.ts';
import type { Progress } from './progress.ts';
import { buildRunsc } from './runsc-build.ts';
import { isRecent, probeRunsc, type RunscFeatures } from './runsc-features.ts';
import { downloadRunscRelease } from './runsc-release.ts';

/** Written beside the binary as features.json. */
export interface RunscInfo {
  /** Where it came from, for people: `built from gvisor.dev/gvisor@…`. */
  origin: string;
  version: string;
  features: RunscFeatures;
}

/** A search that ended with nothing is not repeated at every start. */
const SEARCH_AGAIN_AFTER_MS = 24 * 3600 * 1000;

/** Keeps the module version that was built first, so that a set-up that is repeated makes the same. */
const VERSION_FILE = 'module-version';

/** One place a runsc may come from. `get` throws, with the reason, where it cannot be had. */
interface Source {
  name: string;
  get(scratch: string, say: (text: string) => void): Promise<{ file: string; origin: string }>;
}

/**
 * Gets the newest runsc that can be had, unless there is one. It is copied into the cache whatever its source: an image of a
 * paused sandbox is only understood by the runsc that wrote it, so ours must not change when the host's does.
 */
export async function setUpRunsc(cacheDir: string, host: Host, progress: Progress, again = false): Promise<void> {
  const store = new ArtifactStore(cacheDir, 'runsc');
  await store.removeLeftovers();
  const noneFile = path.join(store.directory, 'none.json');
  if (store.current() !== undefined && !again) return;
  if (!again && searchedLately(noneFile)) {
    progress.announce(
      'No runsc could be had for this machine: the container runtime serves (`sandbar setup --again` looks again)',
    );
    return;
  }
  await mkdir(store.directory, { recursive: true });
  await rm(noneFile, { force: true });
  if (again) await rm(path.join(store.directory, VERSION_FILE), { force: true });

  const refused: string[] = [];
  for (const source of sources(host, store.directory)) {
    try {
      const info = await progress.during(`Getting runsc (gVisor): ${source.name}`, (say) =>
        install(store, source, say),
      );
      progress.note(`runsc ${info.version}, ${info.origin}`);
      return;
    } catch (error) {
      const reason = messageOf(error).split('\n')[0]?.slice(0, 200) ?? '';
      progress.note(`not this way: ${reason}`);
      refused.push(`${source.name}: ${reason}`);
    }
  }
  if (store.current() !== undefined) return;
  await writeFile(noneFile, `${JSON.stringify({ searchedAt: Date.now(), refused }, null, 2)}\n`);
  progress.announce('No runsc could be had: sandboxes run in the container runtime, which shares the host kernel');
}

/** In the order of preference. */
function sources(host: Host, directory: string): Source[] {
  const onPath = findProgram('runsc');
  const hostsOwn = (name: string, mustBeRecent: boolean): Source[] => {
    if (onPath === undefined) return [];
    const get = async () => {
      if (mustBeRecent && !isRecent(await probeRunsc(onPath)))
        throw new SandbarError('unavailable', `${onPath} lacks features that newer ones have`);
      return { file: onPath, origin: `copied from ${onPath}` };
    };
    return [{ name, get }];
  };
  return [
    ...hostsOwn('the one on PATH', true),
    {
      name: 'the official release',
      async get(scratch, say) {
        return { file: await downloadRunscRelease(host, scratch, say), origin: 'official release' };
      },
    },
    {
      name: 'a build from the Go module proxy (about two minutes)',
      async get(scratch, say) {
        const versionFile = path.join(directory, VERSION_FILE);
        const { file, version, changes } = await buildRunsc(host, { scratch, versionFile }, say);
        return { file, origin: [`built from gvisor.dev/gvisor@${version}`, ...changes].join('; ') };
      },
    },
    {
      name: "the distribution's package",
      async get(scratch) {
        const apt = await PrivateApt.open(host, path.join(scratch, 'apt'));
        const version = await apt.newestVersion('runsc');
        if (version === undefined) throw new SandbarError('unavailable', `${host.prettyName} has no package runsc`);
        const tree = await apt.unpack([`runsc=${version}`]);
        return { file: path.join(tree, 'usr/bin/runsc'), origin: `package runsc ${version} of ${host.prettyName}` };
      },
    },
    ...hostsOwn('the older one on PATH', false),
  ];
}

async function install(store: ArtifactStore, source: Source, say: (text: string) => void): Promise<RunscInfo> {
  const scratch = await mkdtemp(path.join(store.directory, '.making-'));
  try {
    const { file, origin } = await source.get(scratch, say);
    say('trying it out');
    await bootOnce(file, scratch);
    const features = await probeRunsc(file);
    const version = await versionOf(file);
    const key = createHash('sha256')
      .update(await readFile(file))
      .digest('hex')
      .slice(0, 16);
    const info: RunscInfo = { origin, version, features };
    await store.add(key, async (directory) => {
      await copyFile(file, path.join(directory, 'runsc'));
      await chmod(path.join(directory, 'runsc'), 0o755);
      await writeFile(path.join(directory, 'features.json'), `${JSON.stringify(info, null, 2)}\n`);
    });
    return info;
  } finally {
    await removeTree(scratch);
  }
}

/** Boots a sandbox that does nothing, which shows that this kernel lets runsc work. `scratch` keeps its state. */
export async function bootOnce(runsc: string, scratch: string): Promise<void> {
  const root = path.join(scratch, 'runsc-root');
  await mkdir(root, { recursive: true });
  await runCommand(runsc, [`--root=${root}`, '--network=none', '--ignore-cgroups', 'do', '/bin/true'], {
    timeoutMs: 30_000,
  });
}

async function versionOf(runsc: string): Promise<string> {
  const { stdout } = await runCommand(runsc, ['--version'], { timeoutMs: 10_000 });
  return /runsc version (\S+)/.exec(stdout)?.[1] ?? 'unknown';
}

function searchedLately(noneFile: string): boolean {
  if (!existsSync(noneFile)) return false;
  const { searchedAt } = JSON.parse(readFileSync(noneFile, 'utf8')) as { searchedAt: number };
  return Date.now() - searchedAt < SEARCH_AGAIN_AFTER_MS;
}
