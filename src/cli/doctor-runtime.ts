import { existsSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { release, tmpdir } from 'node:os';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import type { Config } from '../core/config.ts';
import { ArtifactStore, removeTree } from '../setup/artifact-store.ts';
import { locateRunsc } from '../setup/artifacts.ts';
import { readBaseTemplateInfo } from '../setup/base-template.ts';
import { findProgram } from '../setup/find-program.ts';
import { programs } from '../setup/programs.ts';
import { bootOnce } from '../setup/runsc.ts';
import { isRecent } from '../setup/runsc-features.ts';
import { type Check, fail, ok, warn } from './doctor-check.ts';
import { kernelAtLeast } from './doctor-host.ts';

const SETUP = 'run `npm start` or `sandbar setup`';

export function runtimeChecks(config: Config): Check[] {
  return [
    {
      subject: 'runsc',
      mend: 'run `sandbar setup --again`, or choose the container runtime (SANDBAR_RUNTIME=container)',
      async look() {
        const runsc = locateRunsc(config.cacheDir);
        if (runsc === undefined) {
          const mend = '`sandbar setup --again` looks for one; until then SANDBAR_RUNTIME=container';
          return config.runtime === 'gvisor' ? fail('there is none', mend) : warn('there is none', mend);
        }
        const tookMs = await timeBoot(runsc.path);
        const text = `${runsc.version}, ${runsc.origin}; boots in ${tookMs} ms`;
        if (isRecent(runsc.features)) return ok(text);
        return warn(
          `${text}; old, some of pause and snapshot is refused`,
          '`sandbar setup --again` looks for a newer one',
        );
      },
    },
    {
      subject: 'crun',
      mend: 'reinstall the package crun',
      async look() {
        const crun = findProgram('crun') ?? findProgram('runc');
        if (crun === undefined)
          return config.runtime === 'container'
            ? fail('there is none', SETUP)
            : warn('there is none: the container runtime cannot be chosen', SETUP);
        const { stdout } = await runCommand(crun, ['--version'], { timeoutMs: 10_000 });
        return ok(`${stdout.split('\n')[0]}, ${crun}`);
      },
    },
    {
      subject: 'id mapping',
      mend: 'use Linux 5.19 or newer',
      async look() {
        if (kernelAtLeast(release(), 5, 19)) return ok('the kernel maps ids on overlays');
        const text = 'the kernel cannot map ids on overlays (before 5.19)';
        const mend = 'use a newer kernel (Ubuntu 22.04: the HWE one), or the gvisor runtime, which does not need it';
        return config.runtime === 'container' ? fail(text, mend) : warn(text, mend);
      },
    },
    ...Object.values(programs).map(({ crate, name }) => ({
      subject: crate,
      mend: SETUP,
      async look() {
        const directory = new ArtifactStore(config.cacheDir, crate).current();
        const binary = directory && path.join(directory, name);
        return binary && existsSync(binary) ? ok(binary) : fail(`${name} is not built`, SETUP);
      },
    })),
    {
      subject: 'base template',
      mend: SETUP,
      async look() {
        const directory = new ArtifactStore(config.cacheDir, 'base').current();
        if (directory === undefined) return fail('not made', SETUP);
        const { key, distribution, sizeBytes } = await readBaseTemplateInfo(directory);
        return ok(`${key}, ${distribution}, ${Math.round(sizeBytes / 1e6)} MB`);
      },
    },
  ];
}

async function timeBoot(runsc: string): Promise<number> {
  const scratch = await mkdtemp(path.join(tmpdir(), 'sandbar-doctor-'));
  try {
    const startedAt = Date.now();
    await bootOnce(runsc, scratch);
    return Date.now() - startedAt;
  } finally {
    await removeTree(scratch);
  }
}
