import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../core/config.ts';
import { SandbarError } from '../core/errors.ts';
import { ArtifactStore } from './artifact-store.ts';
import { findProgram } from './find-program.ts';
import { programs } from './programs.ts';
import type { RunscInfo } from './runsc.ts';
import type { RunscFeatures } from './runsc-features.ts';

/** What set-up made for this machine, as the service uses it. */
export interface Artifacts {
  /** The agent's static binary. */
  agent: string;
  /** The program `sandbar-host`, which makes mounts and namespaces for the service. */
  hostHelper: string;
  runsc: { path: string; version: string; features: RunscFeatures; origin: string } | undefined;
  /** crun, or runc where that is what the machine has. */
  crun: string | undefined;
  baseTemplate: { key: string; rootfs: string };
}

const MEND = 'run `npm start` or `sandbar setup`';

export function locateArtifacts(config: Pick<Config, 'cacheDir'>): Artifacts {
  const agent = locateProgram(config.cacheDir, programs.agent);
  const hostHelper = locateProgram(config.cacheDir, programs.host);
  const base = new ArtifactStore(config.cacheDir, 'base').current();
  if (base === undefined) throw missing(`there is no base template (looked in ${config.cacheDir}/base)`);
  return {
    agent,
    hostHelper,
    runsc: locateRunsc(config.cacheDir),
    crun: findProgram('crun') ?? findProgram('runc'),
    baseTemplate: { key: path.basename(base), rootfs: path.join(base, 'rootfs') },
  };
}

function locateProgram(cacheDir: string, program: { crate: string; name: string }): string {
  const directory = new ArtifactStore(cacheDir, program.crate).current();
  if (directory === undefined) throw missing(`${program.name} is not built (looked in ${cacheDir}/${program.crate})`);
  return path.join(directory, program.name);
}

export function locateRunsc(cacheDir: string): Artifacts['runsc'] {
  const directory = new ArtifactStore(cacheDir, 'runsc').current();
  if (directory === undefined) return undefined;
  const binary = path.join(directory, 'runsc');
  const featuresFile = path.join(directory, 'features.json');
  if (!existsSync(binary) || !existsSync(featuresFile)) throw missing(`${directory} is not whole`);
  const { origin, version, features } = JSON.parse(readFileSync(featuresFile, 'utf8')) as RunscInfo;
  return { path: binary, version, features, origin };
}

function missing(what: string): SandbarError {
  return new SandbarError('failed_precondition', `${what}: ${MEND}`);
}
