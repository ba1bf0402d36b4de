import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, statfs } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import type { Config } from '../core/config.ts';
import { removeTree } from '../setup/artifact-store.ts';
import { type Check, fail, ok, warn } from './doctor-check.ts';

const LEAST_FREE_BYTES = 1e9;
const ENOUGH_FREE_BYTES = 10e9;

export function diskChecks(config: Config): Check[] {
  return [
    {
      subject: 'state',
      mend: 'choose another directory (SANDBAR_STATE_DIR)',
      async look() {
        const place = nearestExisting(config.stateDir);
        const { bavail, bsize } = await statfs(place);
        const { stdout } = await runCommand('stat', ['-f', '-c', '%T', place]);
        const freeBytes = bavail * bsize;
        const text = `${config.stateDir} on ${stdout.trim()}, ${Math.round(freeBytes / 1e9)} GB free`;
        if (freeBytes < LEAST_FREE_BYTES)
          return fail(text, 'make space, or choose another directory (SANDBAR_STATE_DIR)');
        if (freeBytes < ENOUGH_FREE_BYTES) return warn(text, 'fills up soon: make space');
        return ok(text);
      },
    },
    {
      subject: 'overlay',
      mend: 'use a kernel with overlayfs, and a state directory on ext4, xfs or btrfs',
      look: () =>
        withScratch(config, async (scratch) => {
          for (const name of ['lower', 'upper', 'work', 'merged']) await mkdir(path.join(scratch, name));
          const options = ['lower', 'upper', 'work'].map((name) => `${name}dir=${path.join(scratch, name)}`).join(',');
          await inPrivateMounts('mount', '-t', 'overlay', 'overlay', '-o', options, path.join(scratch, 'merged'));
          return ok('overlay mounts work in the state directory');
        }),
    },
    {
      subject: 'loop devices',
      mend: 'load the module (modprobe loop); in a container, give it /dev/loop*',
      look: () =>
        withScratch(config, async (scratch) => {
          const image = path.join(scratch, 'disk.img');
          await mkdir(path.join(scratch, 'mounted'));
          await runCommand('truncate', ['-s', '16M', image]);
          await runCommand('mkfs.ext4', ['-q', '-F', image]);
          await inPrivateMounts('mount', '-o', 'loop', image, path.join(scratch, 'mounted'));
          return ok('file systems in files can be mounted');
        }),
    },
  ];
}

/** Runs a mount in a mount namespace of its own: it is gone when the command ends, whatever happens. */
async function inPrivateMounts(...command: string[]): Promise<void> {
  await runCommand('unshare', ['--mount', '--propagation', 'private', '--', ...command], { timeoutMs: 10_000 });
}

/** A scratch directory on the file system of the state directory. */
async function withScratch<T>(config: Config, task: (scratch: string) => Promise<T>): Promise<T> {
  const scratch = await mkdtemp(path.join(nearestExisting(config.stateDir), '.sandbar-doctor-'));
  try {
    return await task(scratch);
  } finally {
    await removeTree(scratch);
  }
}

function nearestExisting(place: string): string {
  return existsSync(place) ? place : nearestExisting(path.dirname(place));
}
