import { accessSync, constants, statSync } from 'node:fs';
import path from 'node:path';

/** Where administrators' programs live; a PATH handed down by sudo or a service manager may lack them. */
const SYSTEM_DIRECTORIES = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** Absolute path of a program, or undefined. */
export function findProgram(name: string, searchPath = process.env['PATH'] ?? ''): string | undefined {
  for (const directory of [...searchPath.split(':').filter(path.isAbsolute), ...SYSTEM_DIRECTORIES]) {
    const candidate = path.join(directory, name);
    try {
      accessSync(candidate, constants.X_OK);
      if (statSync(candidate).isFile()) return candidate;
    } catch {
      // Not here: look further.
    }
  }
  return undefined;
}
