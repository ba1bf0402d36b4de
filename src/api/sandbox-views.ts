import type { Static } from 'typebox';
import { publicStateOf } from '../db/public-state.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';
import type { NetworkConfig } from '../sandboxes/network-config.ts';
import { dateTime } from './date-time.ts';
import { CLIENT_ID, noSuchSandbox } from './sandbox-id.ts';
import type { ListedSandbox, Sandbox, SandboxDetail } from './sandbox-schemas.ts';

// Rows as the wire shows them. Optional fields that are not nullable are left out, never null: Python's client breaks on it.

export function sandboxOf(row: SandboxRow): Static<typeof Sandbox> {
  return {
    templateID: row.templateId,
    sandboxID: row.id,
    clientID: CLIENT_ID,
    envdVersion: row.envdVersion,
    ...(row.alias !== null && { alias: row.alias }),
    envdAccessToken: row.envdAccessToken,
    trafficAccessToken: row.trafficAccessToken,
    domain: null,
  };
}

export function listedSandboxOf(row: SandboxRow): Static<typeof ListedSandbox> {
  const state = publicStateOf(row.state);
  if (state === undefined) throw noSuchSandbox(row.id);
  return {
    templateID: row.templateId,
    sandboxID: row.id,
    clientID: CLIENT_ID,
    startedAt: dateTime(row.startedAt),
    endAt: dateTime(row.endAt),
    cpuCount: row.cpuCount,
    memoryMB: row.memoryMb,
    diskSizeMB: row.diskSizeMb,
    state,
    envdVersion: row.envdVersion,
    ...(row.alias !== null && { alias: row.alias }),
    metadata: row.metadata,
    volumeMounts: row.volumeMounts,
  };
}

export function sandboxDetailOf(row: SandboxRow): Static<typeof SandboxDetail> {
  return {
    ...listedSandboxOf(row),
    envdAccessToken: row.envdAccessToken,
    allowInternetAccess: row.allowInternetAccess,
    domain: null,
    ...(row.network !== null && { network: withoutPassword(row.network) }),
    lifecycle: { autoResume: row.autoResume, onTimeout: row.autoPause ? 'pause' : 'kill' },
    ...(row.state === 'paused' && { pauseMode: row.memoryKept ? 'full' : 'filesystem' }),
  };
}

function withoutPassword({ egressProxy, ...network }: NetworkConfig): NetworkConfig {
  if (egressProxy === undefined || egressProxy === null) return network;
  const { password: _, ...shown } = egressProxy;
  return { ...network, egressProxy: shown };
}
