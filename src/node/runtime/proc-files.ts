import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';

/** Files shown in place of the machine's own, so that programs size themselves by the sandbox's limits. */
export interface ShownFiles {
  memInfo: string;
  cpuInfo: string;
  /** A directory in place of /sys. */
  sys: string;
}

/** The shown files of each size of sandbox, made once and shared by all of that size. */
export class ProcFiles {
  readonly #directory: string;
  readonly #made = new Map<string, Promise<ShownFiles>>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  of(cpuCount: number, memoryMb: number): Promise<ShownFiles> {
    const size = `${cpuCount}-${memoryMb}`;
    const made = this.#made.get(size) ?? this.#make(path.join(this.#directory, size), cpuCount, memoryMb);
    this.#made.set(size, made);
    made.catch(() => this.#made.delete(size));
    return made;
  }

  async #make(directory: string, cpuCount: number, memoryMb: number): Promise<ShownFiles> {
    const shown = {
      memInfo: path.join(directory, 'meminfo'),
      cpuInfo: path.join(directory, 'cpuinfo'),
      sys: path.join(directory, 'sys'),
    };
    const cpus = path.join(shown.sys, 'devices/system/cpu');
    await mkdir(cpus, { recursive: true });
    await replace(shown.memInfo, memInfo(memoryMb));
    await replace(shown.cpuInfo, cpuInfo(await readFile('/proc/cpuinfo', 'utf8'), cpuCount));
    for (const file of ['online', 'possible', 'present']) await replace(path.join(cpus, file), `0-${cpuCount - 1}\n`);
    return shown;
  }
}

/** Never seen half written: sandboxes of an earlier run may be looking. */
async function replace(file: string, text: string): Promise<void> {
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}

/** /proc/meminfo of a sandbox: its limit as the total, in the words `free` and others look for. */
function memInfo(memoryMb: number): string {
  const total = memoryMb * 1024;
  const rows: [string, number][] = [
    ['MemTotal', total],
    ['MemFree', total],
    ['MemAvailable', total],
    ...NONE.map((name): [string, number] => [name, 0]),
  ];
  return rows.map(([name, value]) => `${`${name}:`.padEnd(16)}${String(value).padStart(8)} kB\n`).join('');
}

const NONE = [
  'Buffers',
  'Cached',
  'SwapCached',
  'Active',
  'Inactive',
  'SwapTotal',
  'SwapFree',
  'Dirty',
  'Shmem',
  'SReclaimable',
  'Committed_AS',
];

/** The machine's /proc/cpuinfo, with as many processors as the sandbox has. */
function cpuInfo(machine: string, cpuCount: number): string {
  const blocks = machine.split('\n\n').filter((block) => block.trim() !== '');
  const [first = 'processor\t: 0'] = blocks;
  return Array.from({ length: cpuCount }, (_, index) =>
    (blocks[index] ?? first).replace(/^processor(\s*): \d+$/m, `processor$1: ${index}`),
  )
    .map((block) => `${block}\n\n`)
    .join('');
}
