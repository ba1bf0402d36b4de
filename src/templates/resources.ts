import { totalmem } from 'node:os';
import { SandbarError } from '../core/errors.ts';

const MIB = 1024 * 1024;
const MOST_CPUS = 32;
const LEAST_MEMORY_MB = 128;
const MOST_DISK_MB = 16 * 1024 * 1024;

/** Refuses resources that no sandbox can have. */
export function checkResources({
  cpuCount,
  memoryMb,
  diskSizeMb,
}: {
  cpuCount: number;
  memoryMb: number;
  diskSizeMb: number;
}): void {
  const mostMemoryMb = Math.floor(totalmem() / MIB);
  if (cpuCount < 1 || cpuCount > MOST_CPUS)
    throw new SandbarError('invalid', `CPU count must be from 1 to ${MOST_CPUS}, not ${cpuCount}`);
  if (cpuCount !== 1 && cpuCount % 2 !== 0)
    throw new SandbarError('invalid', `CPU count must be 1 or an even number, not ${cpuCount}`);
  if (memoryMb < LEAST_MEMORY_MB || memoryMb > mostMemoryMb)
    throw new SandbarError('invalid', `Memory must be from ${LEAST_MEMORY_MB} to ${mostMemoryMb} MB, not ${memoryMb}`);
  if (memoryMb % 2 !== 0) throw new SandbarError('invalid', `Memory must be an even number of MB, not ${memoryMb}`);
  if (diskSizeMb > MOST_DISK_MB)
    throw new SandbarError('invalid', `Free disk space must be at most ${MOST_DISK_MB} MB, not ${diskSizeMb}`);
}
