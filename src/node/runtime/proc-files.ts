/** /proc/meminfo of a sandbox: its limit as the total, what it uses of it, in the words `free` and others look for. */
export function memInfo(memoryMb: number, usedBytes: number, cacheBytes: number): string {
  const total = memoryMb * 1024;
  const cached = Math.round(cacheBytes / 1024);
  const used = Math.min(total, Math.round(usedBytes / 1024));
  const free = Math.max(0, total - used);
  const available = Math.min(total, free + cached);
  const rows: [string, number][] = [
    ['MemTotal', total],
    ['MemFree', free],
    ['MemAvailable', available],
    ['Buffers', 0],
    ['Cached', cached],
    ['SwapCached', 0],
    ['Active', Math.max(0, used - cached)],
    ['Inactive', cached],
    ['SwapTotal', 0],
    ['SwapFree', 0],
    ['Dirty', 0],
    ['Shmem', 0],
    ['SReclaimable', 0],
    ['Committed_AS', used],
  ];
  return rows.map(([name, value]) => `${`${name}:`.padEnd(16)}${String(value).padStart(8)} kB\n`).join('');
}

/** The machine's /proc/cpuinfo, with as many processors as the sandbox has. */
export function cpuInfo(machine: string, cpuCount: number): string {
  const blocks = machine.split('\n\n').filter((block) => block.trim() !== '');
  const [first = 'processor\t: 0'] = blocks;
  return Array.from({ length: cpuCount }, (_, index) =>
    (blocks[index] ?? first).replace(/^processor(\s*): \d+$/m, `processor$1: ${index}`),
  )
    .map((block) => `${block}\n\n`)
    .join('');
}
