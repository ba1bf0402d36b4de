import path from 'node:path';
import type { Config } from '../core/config.ts';
import { setUpBaseTemplate } from './base-template.ts';
import { readHost } from './host.ts';
import { withLock } from './lock.ts';
import { setUpPackages } from './packages.ts';
import { setUpPrograms } from './programs.ts';
import { Progress } from './progress.ts';
import { setUpRunsc } from './runsc.ts';

export interface SetupOptions {
  /** Also what the test suites need. */
  forTests?: boolean;
  /** Look anew for a runsc, even where one was found or given up on. */
  again?: boolean;
}

/** Brings the machine to where the service can run. Does only what is not done yet; two at once wait for each other. */
export async function setUp(
  config: Pick<Config, 'cacheDir'>,
  options: SetupOptions = {},
  progress = new Progress(),
): Promise<void> {
  const host = readHost();
  const lockFile = path.join(config.cacheDir, 'setup.lock');
  const announceWait = () => progress.announce('Another set-up is running on this machine: waiting for it');
  await withLock(lockFile, announceWait, async () => {
    await setUpPackages(host, progress, options.forTests ?? false);
    await setUpPrograms(config.cacheDir, progress);
    await setUpBaseTemplate(config.cacheDir, host, progress);
    // Last, since it never fails: it would write off runsc for want of a network, where the steps above say so and stop.
    await setUpRunsc(config.cacheDir, host, progress, options.again ?? false);
  });
}
