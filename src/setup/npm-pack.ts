import { mkdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import { messageOf, SandbarError } from '../core/errors.ts';

/** Options that keep npm to the point, and let it give up within seconds when its registry is out of reach. */
export const quietNpm = [
  '--no-audit',
  '--no-fund',
  '--no-update-notifier',
  '--loglevel=error',
  '--fetch-retries=2',
  '--fetch-retry-mintimeout=1000',
  '--fetch-retry-maxtimeout=5000',
];

/** Downloads one package of the npm registry and unpacks it; nothing of it is run. */
export async function packFromNpm(specifier: string, directory: string): Promise<{ id: string; directory: string }> {
  await mkdir(directory, { recursive: true });
  try {
    // An empty working directory: npm would read the settings of a project it is started in.
    const { stdout } = await runCommand('npm', ['pack', specifier, '--json', ...quietNpm], {
      cwd: directory,
      timeoutMs: 300_000,
    });
    const filename = (JSON.parse(stdout) as { filename: string }[])[0]?.filename;
    if (filename === undefined) throw new SandbarError('internal', `npm pack ${specifier} gave no file`);
    await runCommand('tar', ['-xzf', filename, '--no-same-owner'], { cwd: directory });
  } catch (error) {
    throw new SandbarError('failed_precondition', `npm could not download ${specifier}: ${npmReason(error)}`, {
      cause: error,
    });
  }
  const unpacked = path.join(directory, 'package');
  const { name, version } = JSON.parse(await readFile(path.join(unpacked, 'package.json'), 'utf8'));
  return { id: `${name}@${version}`, directory: unpacked };
}

function npmReason(error: unknown): string {
  const lines = messageOf(error).split('\n');
  const line = lines.find((each) => /npm (error|ERR!) (code|network|request)/.test(each)) ?? lines[0] ?? '';
  return line.replace(/^npm (error|ERR!) /, '').slice(0, 200);
}
