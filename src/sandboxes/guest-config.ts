import type { TemplateBuildRow } from '../db/schema.ts';
import type { SandboxRow } from './contract.ts';

/** Processes a sandbox may have at once. */
const PIDS_MAX = 1024;

const FALLBACK = { defaultUser: 'user', defaultWorkdir: '/home/user' };

/** What is set inside a sandbox when it comes up: the caller's variables, those that tell a program where it is, the template's defaults. */
export function guestConfig(
  row: Pick<SandboxRow, 'id' | 'templateId' | 'envVars'>,
  build: Pick<TemplateBuildRow, 'defaultUser' | 'defaultWorkdir'> | undefined,
): { env: Record<string, string>; defaultUser: string; defaultWorkdir: string } {
  const { defaultUser, defaultWorkdir } = build ?? FALLBACK;
  return {
    env: { ...row.envVars, E2B_SANDBOX: 'true', E2B_SANDBOX_ID: row.id, E2B_TEMPLATE_ID: row.templateId },
    defaultUser,
    defaultWorkdir: defaultWorkdir ?? '',
  };
}

/** What a sandbox is booted from: the same for all that could stand in for each other. */
export function bootKind(
  row: Pick<SandboxRow, 'runtime' | 'templateId' | 'buildId' | 'cpuCount' | 'memoryMb' | 'diskSizeMb' | 'snapshotId'>,
  build: Pick<TemplateBuildRow, 'layers'>,
) {
  const { runtime, templateId, buildId, cpuCount, memoryMb, diskSizeMb } = row;
  return {
    runtime,
    templateId,
    buildId,
    rootFs: { layers: build.layers },
    resources: { cpuCount, memoryMb, diskSizeMb, pidsMax: PIDS_MAX },
    snapshotId: row.snapshotId ?? '',
  };
}
