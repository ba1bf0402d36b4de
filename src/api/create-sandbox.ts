import path from 'node:path';
import { SandbarError } from '../core/errors.ts';
import type { CreateSandbox, VolumeMount } from '../sandboxes/contract.ts';
import type { NetworkConfig } from '../sandboxes/network-config.ts';
import { checkNetwork } from './network-validation.ts';
import { refuseNotYet, refuseUnknownNetworkFields } from './not-yet.ts';
import type { NewSandbox } from './sandbox-schemas.ts';

/** What the two generations of the create endpoint do differently. */
export interface Generation {
  defaultTimeoutSeconds: number;
  /** Every sandbox is secure, whatever the body says. */
  alwaysSecure: boolean;
}

/** A create request, checked beyond its schema. Throws `invalid` with the protocol's messages. */
export function createSpecOf(body: NewSandbox, generation: Generation, maxTimeoutSeconds: number): CreateSandbox {
  const timeoutSeconds = checkTimeout(body.timeout ?? generation.defaultTimeoutSeconds, maxTimeoutSeconds);
  const secure = generation.alwaysSecure || body.secure === true;
  const autoPause = body.autoPause ?? false;
  const autoPauseMemory = body.autoPauseMemory ?? true;
  const autoResume = body.autoResume?.enabled ?? false;
  if (!autoPauseMemory && !autoPause) throw refuse('autoPauseMemory=false requires autoPause=true');
  if (!autoPauseMemory && autoResume) throw refuse('autoPauseMemory=false cannot be combined with autoResume');
  const network = networkOf(body);
  if (network?.allowPublicTraffic === false && !secure)
    throw refuse('network.allowPublicTraffic=false requires a secure sandbox (secure: true)');
  const volumeMounts = body.volumeMounts ?? [];
  checkMounts(volumeMounts);
  const envVars = body.envVars ?? {};
  checkEnvVars(envVars);
  refuseNotYet(body);
  return {
    templateRef: body.templateID,
    timeoutSeconds,
    secure,
    autoPause,
    autoPauseMemory,
    autoResume,
    allowInternetAccess: body.allow_internet_access ?? null,
    network,
    metadata: body.metadata ?? {},
    envVars,
    volumeMounts,
  };
}

function networkOf({ network, allow_internet_access }: NewSandbox): NetworkConfig | null {
  if (network === undefined) return null;
  refuseUnknownNetworkFields(network);
  const { allowPublicTraffic, ...rest } = network;
  const given = typeof allowPublicTraffic === 'boolean' ? { ...rest, allowPublicTraffic } : rest;
  return checkNetwork(given, allow_internet_access === false);
}

export function checkTimeout(seconds: number, maxSeconds: number): number {
  if (seconds > maxSeconds) throw refuse(`Timeout cannot be greater than ${maxSeconds / 3600} hours`);
  return seconds;
}

function checkMounts(mounts: VolumeMount[]): void {
  const bad = (why: string) => refuse(`invalid mounts: ${why}`);
  for (const { path: target } of mounts) {
    if (!path.posix.isAbsolute(target)) throw bad(`path '${target}' must be absolute`);
    if (path.posix.normalize(target) !== target || (target.length > 1 && target.endsWith('/')))
      throw bad(`path '${target}' must be clean`);
  }
  if (new Set(mounts.map((mount) => mount.path)).size < mounts.length) throw bad('two mounts have the same path');
}

/** What no process can be given as its environment. */
function checkEnvVars(envVars: Record<string, string>): void {
  for (const [name, value] of Object.entries(envVars)) {
    if (name === '' || name.includes('=') || name.includes('\0'))
      throw refuse(`invalid name ${JSON.stringify(name)} of an environment variable`);
    if (value.includes('\0')) throw refuse(`environment variable ${name} contains a NUL character`);
  }
}

function refuse(why: string): SandbarError {
  return new SandbarError('invalid', why);
}
