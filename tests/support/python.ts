import { createHash } from 'node:crypto';
import { mkdir, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type CommandResult, runCommand } from '../../src/core/command.ts';
import { loadConfig } from '../../src/core/config.ts';
import { messageOf } from '../../src/core/errors.ts';
import { withLock } from '../../src/setup/lock.ts';

/** What suites use of PyPI: the SDK, and the SDK with the code interpreter. */
export type PythonPackages = 'e2b' | 'e2b-code-interpreter';

export interface PythonRun {
  /** Environment beside PATH and HOME; an SDK's settings come from here alone. */
  env: Record<string, string>;
  args?: readonly string[];
  timeoutMs?: number;
  packages?: PythonPackages;
  /** Hears every line as it is printed. */
  onLine?: (line: string) => void;
  /** Exit statuses that are not an error; by default 0 alone. */
  okStatuses?: readonly number[];
}

/** Days after which an environment is made anew, so that `newest` stays true. */
const FRESH_DAYS = 7;

/** Runs a script with the newest official Python packages. */
export async function runPython(script: string, run: PythonRun): Promise<CommandResult> {
  const environment = await pythonEnvironment(run.packages ?? 'e2b');
  return runCommand(path.join(environment, 'bin/python'), ['-u', script, ...(run.args ?? [])], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], PYTHONDONTWRITEBYTECODE: '1', ...run.env },
    timeoutMs: run.timeoutMs ?? 120_000,
    ...(run.onLine !== undefined && { onLine: run.onLine }),
    ...(run.okStatuses !== undefined && { okStatuses: run.okStatuses }),
  });
}

/** Directory of a virtual environment with the newest of the packages; made once in the cache directory and used again. */
export async function pythonEnvironment(packages: PythonPackages): Promise<string> {
  const { cacheDir } = loadConfig(process.env);
  const key = createHash('sha256').update(packages).digest('hex').slice(0, 16);
  const directory = path.join(cacheDir, 'test-venv', key);
  const stamp = path.join(directory, '.made');
  return withLock(
    path.join(cacheDir, 'test-venv', 'lock'),
    () => undefined,
    async () => {
      const age = await ageDays(stamp);
      if (age < FRESH_DAYS) return directory;
      if (age === Number.POSITIVE_INFINITY) {
        await rm(directory, { recursive: true, force: true });
        await mkdir(path.dirname(directory), { recursive: true });
        await runCommand('python3', ['-m', 'venv', directory]);
      }
      try {
        const pip = [path.join(directory, 'bin/python'), '-m', 'pip', 'install', '--quiet', '--upgrade', packages];
        await runCommand(pip[0] as string, pip.slice(1), { timeoutMs: 300_000 });
        await writeFile(stamp, '');
      } catch (error) {
        // An older one still serves where no index can be reached now.
        if (age === Number.POSITIVE_INFINITY) throw error;
        process.stderr.write(`the Python packages are ${Math.floor(age)} days old: ${messageOf(error)}\n`);
      }
      return directory;
    },
  );
}

async function ageDays(file: string): Promise<number> {
  try {
    return (Date.now() - (await stat(file)).mtimeMs) / 86_400_000;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
