import type { BuildContent, TemplateStore } from '../db/template-store.ts';

/** Version of the in-sandbox interface that we report; clients unlock features by it. */
export const ENVD_VERSION = '0.6.13';

export const DEFAULT_CPU_COUNT = 2;
export const DEFAULT_MEMORY_MB = 1024;

/** Name of the layer that holds a base template made by set-up. */
export function baseLayerName(key: string): string {
  return `base-${key}`;
}

/** Makes sure that everybody's `base` stands for the layer that set-up made. */
export async function registerBase(store: TemplateStore, layer: string, diskSizeMb: number): Promise<void> {
  const content: BuildContent = {
    cpuCount: DEFAULT_CPU_COUNT,
    memoryMb: DEFAULT_MEMORY_MB,
    diskSizeMb,
    envdVersion: ENVD_VERSION,
    layers: [layer],
    startCmd: null,
    readyCmd: null,
    defaultUser: 'user',
    defaultWorkdir: '/home/user',
    env: {},
    snapshotId: null,
  };
  await store.upsertBuiltin('base', content, Date.now());
}
