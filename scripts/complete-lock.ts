/**
 * Completes package-lock.json after a change of dependencies: `node scripts/complete-lock.ts`.
 *
 * npm leaves out of the lock the optional packages of platforms that it did not install or could not look up
 * (npm/cli#4828), and then `npm ci` refuses that very lock. Each of them gets an entry here with the version that its parent
 * names and the platform that its name tells, so that `npm ci` passes everywhere and skips those that do not fit.
 */
import { readFileSync, writeFileSync } from 'node:fs';

interface Entry {
  version?: string;
  dev?: boolean;
  optional?: boolean;
  os?: string[];
  cpu?: string[];
  libc?: string[];
  optionalDependencies?: Record<string, string>;
}

const SYSTEMS = ['android', 'darwin', 'freebsd', 'linux', 'netbsd', 'openbsd', 'openharmony', 'sunos', 'aix', 'win32'];
const CPUS = ['arm64', 'arm', 'x64', 'ia32', 'ppc64', 'riscv64', 's390x', 'loong64', 'mips64el', 'wasm32'];
const SINGLE_PLATFORM: Record<string, Partial<Entry>> = { fsevents: { os: ['darwin'] } };

const file = 'package-lock.json';
const lock = JSON.parse(readFileSync(file, 'utf8')) as { packages: Record<string, Entry> };
const added: string[] = [];

for (const [parentPath, parent] of Object.entries(lock.packages)) {
  for (const [name, version] of Object.entries(parent.optionalDependencies ?? {})) {
    if (isLocked(parentPath, name)) continue;
    if (!/^\d+\.\d+\.\d+/.test(version) && SINGLE_PLATFORM[name] === undefined)
      throw new Error(`${name} of ${parentPath} is missing, and '${version}' names no version to put in`);
    lock.packages[`node_modules/${name}`] = {
      version: version.replace(/^[\^~]/, ''),
      ...platformOf(name),
      ...(parent.dev === true && { dev: true }),
      optional: true,
    };
    added.push(`${name}@${version}`);
  }
}

const sorted = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(file, `${JSON.stringify({ ...lock, packages: sorted }, null, 2)}\n`);
console.log(added.length === 0 ? 'The lock is complete.' : `Added ${added.length} entries:\n  ${added.join('\n  ')}`);

/** Looks where Node would: beside the parent's own dependencies, then further up. */
function isLocked(parentPath: string, name: string): boolean {
  const parts = parentPath === '' ? [] : parentPath.split('/node_modules/');
  for (let depth = parts.length; depth >= 0; depth--) {
    const prefix = parts.slice(0, depth).join('/node_modules/');
    if (lock.packages[prefix === '' ? `node_modules/${name}` : `${prefix}/node_modules/${name}`]) return true;
  }
  return false;
}

function platformOf(name: string): Partial<Entry> {
  const words = name.split(/[/-]/);
  const os = SYSTEMS.filter((word) => words.includes(word));
  const cpu = CPUS.filter((word) => words.includes(word));
  const platform = SINGLE_PLATFORM[name] ?? { ...(os.length > 0 && { os }), ...(cpu.length > 0 && { cpu }) };
  if (Object.keys(platform).length === 0) throw new Error(`the name of ${name} tells no platform: see what it is for`);
  if (words.includes('musl')) return { ...platform, libc: ['musl'] };
  if (words.includes('gnu')) return { ...platform, libc: ['glibc'] };
  return platform;
}
