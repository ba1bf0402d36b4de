import { readFileSync } from 'node:fs';

/** Resident memory of a process. */
export function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

/** Watches the resident memory of a process while something goes on; gives the result and the highest that was seen. */
export async function peakResidentBytes<T>(pid: number, work: () => Promise<T>): Promise<{ result: T; peak: number }> {
  let peak = residentBytes(pid);
  const look = setInterval(() => {
    peak = Math.max(peak, residentBytes(pid));
  }, 50);
  try {
    const result = await work();
    return { result, peak: Math.max(peak, residentBytes(pid)) };
  } finally {
    clearInterval(look);
  }
}
