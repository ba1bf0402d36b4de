import { randomHex } from '../core/ids.ts';
import type { ResolvedTemplate } from '../db/template-store.ts';
import type { CreateSandbox, SandboxRow } from './contract.ts';

const TOKEN_BYTES = 32;
/** Tokens that stay valid beside the present one: more resumes than a sandbox will see, and yet not without end. */
const EARLIER_TOKENS = 1_000;

/** The row of a sandbox that is about to be made. */
export function newRow(
  id: string,
  teamId: string,
  spec: CreateSandbox,
  { template, build, aliases }: ResolvedTemplate,
  runtime: string,
): SandboxRow {
  const now = Date.now();
  return {
    id,
    teamId,
    templateId: template.id,
    buildId: build.id,
    alias: aliases[0] ?? null,
    state: 'starting',
    startedAt: now,
    endAt: now,
    createdAt: now,
    cpuCount: build.cpuCount,
    memoryMb: build.memoryMb,
    diskSizeMb: build.diskSizeMb,
    envdVersion: build.envdVersion,
    runtime,
    ...newTokens(spec.secure, spec.network?.allowPublicTraffic === false),
    metadata: spec.metadata,
    envVars: spec.envVars,
    timeoutSeconds: spec.timeoutSeconds,
    autoPause: spec.autoPause,
    autoPauseMemory: spec.autoPauseMemory,
    autoResume: spec.autoResume,
    allowInternetAccess: spec.allowInternetAccess,
    network: spec.network,
    volumeMounts: spec.volumeMounts,
    memoryKept: true,
    endReason: null,
    snapshotId: build.snapshotId,
  };
}

/** The row of a copy: everything of the original but its identity. */
export function forkedRow(id: string, original: SandboxRow, snapshotId: string, timeoutSeconds: number): SandboxRow {
  const now = Date.now();
  return {
    ...original,
    id,
    state: 'starting',
    startedAt: now,
    endAt: now,
    createdAt: now,
    timeoutSeconds,
    memoryKept: true,
    endReason: null,
    snapshotId,
    ...newTokens(original.secure, original.trafficAccessToken !== null),
  };
}

/** A new token for a secure sandbox; the present one joins those that stay valid. */
export function freshToken(
  row: Pick<SandboxRow, 'envdAccessToken' | 'earlierTokens'>,
): Pick<SandboxRow, 'envdAccessToken' | 'earlierTokens'> {
  if (row.envdAccessToken === null) return { envdAccessToken: null, earlierTokens: [] };
  const earlierTokens = [...row.earlierTokens, row.envdAccessToken].slice(-EARLIER_TOKENS);
  return { envdAccessToken: randomHex(TOKEN_BYTES), earlierTokens };
}

function newTokens(
  secure: boolean,
  privateTraffic: boolean,
): Pick<SandboxRow, 'secure' | 'envdAccessToken' | 'earlierTokens' | 'trafficAccessToken'> {
  return {
    secure,
    envdAccessToken: secure ? randomHex(TOKEN_BYTES) : null,
    earlierTokens: [],
    trafficAccessToken: privateTraffic ? randomHex(TOKEN_BYTES) : null,
  };
}
