import type { SandboxRow } from '../../src/sandboxes/contract.ts';

/** A sandbox as the store keeps it; `change` sets what a test is about. */
export function rowOf(change: Partial<SandboxRow>): SandboxRow {
  return {
    id: 'i0000000000000000000a',
    teamId: 'team',
    templateId: 'template',
    buildId: 'build',
    alias: 'base',
    state: 'running',
    startedAt: Date.UTC(2026, 0, 1),
    endAt: Date.UTC(2026, 0, 1, 0, 5),
    createdAt: Date.UTC(2026, 0, 1),
    cpuCount: 2,
    memoryMb: 1024,
    diskSizeMb: 10240,
    envdVersion: '0.6.13',
    runtime: 'gvisor',
    secure: true,
    envdAccessToken: 'envd-token',
    earlierTokens: [],
    trafficAccessToken: null,
    metadata: {},
    envVars: {},
    timeoutSeconds: 300,
    autoPause: false,
    autoPauseMemory: true,
    autoResume: false,
    allowInternetAccess: null,
    network: null,
    volumeMounts: [],
    memoryKept: true,
    endReason: null,
    snapshotId: null,
    ...change,
  };
}
