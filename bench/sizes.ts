import type { DockerSize } from './docker.ts';
import type { GrowthSize } from './growth.ts';
import type { InsideSize } from './inside.ts';
import type { LifecycleSize } from './lifecycle.ts';
import type { MemorySize } from './memory.ts';
import type { NetworkSize } from './network.ts';
import type { TransferSize } from './transfer.ts';

/** How much of everything is measured. */
export interface Sizes {
  /** Sandboxes of each shape of the ComputeSDK suite. */
  creates: number;
  sustainedSeconds: number;
  inside: InsideSize;
  transfer: TransferSize;
  memory: MemorySize;
  growth: GrowthSize;
  lifecycle: LifecycleSize;
  templates: number;
  network: NetworkSize;
  bare: number;
  docker: DockerSize;
}

export const FULL: Sizes = {
  creates: 100,
  sustainedSeconds: 60,
  inside: { calls: 300, lists: 10, outputMb: 64 },
  transfer: { megabytes: 1024, rounds: 3 },
  memory: { counts: [1, 50, 200], watchSeconds: 10 },
  growth: { few: 100, many: 10_000, calls: 200, creates: 20 },
  lifecycle: { memoryMb: [50, 500, 2000], rounds: 5, forks: [1, 10, 100] },
  templates: 10,
  network: { seconds: 10, megabytes: 256 },
  bare: 20,
  docker: { samples: 20, megabytes: 1024, outputMb: 64 },
};

/** Enough to see that everything runs; the figures mean little. */
export const QUICK: Sizes = {
  creates: 10,
  sustainedSeconds: 5,
  inside: { calls: 20, lists: 2, outputMb: 8 },
  transfer: { megabytes: 64, rounds: 2 },
  memory: { counts: [1, 5], watchSeconds: 2 },
  growth: { few: 100, many: 2_000, calls: 50, creates: 3 },
  lifecycle: { memoryMb: [50], rounds: 2, forks: [1, 5] },
  templates: 2,
  network: { seconds: 2, megabytes: 32 },
  bare: 3,
  docker: { samples: 3, megabytes: 64, outputMb: 8 },
};
