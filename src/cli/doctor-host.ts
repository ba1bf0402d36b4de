import { existsSync, readFileSync } from 'node:fs';
import { release } from 'node:os';
import path from 'node:path';
import { isSupported, readHost, SUPPORTED_SYSTEMS } from '../setup/host.ts';
import { type Check, fail, ok, warn } from './doctor-check.ts';

const CGROUP_ROOT = '/sys/fs/cgroup';
const NEEDED_CONTROLLERS = ['cpu', 'memory', 'pids'];

export function hostChecks(): Check[] {
  return [
    {
      subject: 'system',
      mend: 'use one of the systems that are named in the README',
      async look() {
        const host = readHost();
        const text = `${host.prettyName}, ${host.arch}`;
        return isSupported(host)
          ? ok(text)
          : warn(text, `tried on ${SUPPORTED_SYSTEMS.join(', ')}: here you install what set-up lists`);
      },
    },
    {
      subject: 'kernel',
      mend: 'use Linux 5.10 or newer',
      async look() {
        const kernel = release();
        return kernelAtLeast(kernel, 5, 10) ? ok(kernel) : fail(`${kernel} is too old`, 'use Linux 5.10 or newer');
      },
    },
    {
      subject: 'root',
      mend: 'run as root',
      async look() {
        const uid = process.getuid?.();
        return uid === 0 ? ok('running as root') : fail(`running as uid ${uid}`, 'run as root or with sudo');
      },
    },
    {
      subject: 'cgroups',
      mend: 'mount the cgroup file system on /sys/fs/cgroup',
      async look() {
        const { kind, controllers } = readCgroups(CGROUP_ROOT);
        const missing = NEEDED_CONTROLLERS.filter((name) => !controllers.includes(name));
        if (missing.length === 0) return ok(`${kind}, with ${NEEDED_CONTROLLERS.join(', ')}`);
        const mend = 'switch the controllers on (kernel command line: cgroup_enable=memory), or boot with cgroup v2';
        return fail(`${kind}, without ${missing.join(', ')}`, mend);
      },
    },
  ];
}

/** Whether a kernel release, e.g. `6.1.0-18-amd64`, is at least the given one. */
export function kernelAtLeast(kernel: string, major: number, minor: number): boolean {
  const [, foundMajor, foundMinor] = /^(\d+)\.(\d+)/.exec(kernel) ?? [];
  return Number(foundMajor) > major || (Number(foundMajor) === major && Number(foundMinor) >= minor);
}

/** Which layout of control groups the host has, and the controllers that can be used. */
export function readCgroups(root: string): { kind: string; controllers: string[] } {
  const unified = path.join(root, 'cgroup.controllers');
  if (existsSync(unified)) return { kind: 'version 2', controllers: readFileSync(unified, 'utf8').trim().split(/\s+/) };
  const controllers = ['cpu', 'memory', 'pids', 'freezer', 'cpuset'].filter((name) =>
    existsSync(path.join(root, name, 'cgroup.procs')),
  );
  const hybrid = existsSync(path.join(root, 'unified', 'cgroup.controllers'));
  return { kind: hybrid ? 'hybrid (version 1 controllers beside version 2)' : 'version 1', controllers };
}
