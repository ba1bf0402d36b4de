import path from 'node:path';
import { parseArgs } from 'node:util';
import { version } from '../src/cli/version.ts';
import { runCommand } from '../src/core/command.ts';
import { loadConfig } from '../src/core/config.ts';
import { messageOf } from '../src/core/errors.ts';
import { type Artifacts, locateArtifacts } from '../src/setup/artifacts.ts';
import { findProgram } from '../src/setup/find-program.ts';
import { RUNTIMES } from '../tests/support/node.ts';
import { endOnSignals, isInterrupted } from './closing.ts';
import { printSideBySide } from './comparison.ts';
import { PARTS, type Part } from './parts.ts';
import { environment, printRows, type Row, writeResults } from './report.ts';
import { FULL, QUICK } from './sizes.ts';
import { printTargets, targetsOf } from './targets.ts';

const USAGE = `npm run bench -- [--quick] [--only part,…] [--runtime container|gvisor]
parts: ${Object.keys(PARTS).join(', ')}`;

const ended = endOnSignals();
const { parts, wantedRuntimes, sizes } = readArguments();
const artifacts = locateArtifacts(loadConfig(process.env));
// Without runsc the service falls back to containers, which must not be taken for gVisor.
const runtimes = wantedRuntimes.filter((name) => name === 'container' || artifacts.runsc !== undefined);
const about = environment(await versions(artifacts));
console.log(
  Object.entries(about)
    .map(([name, value]) => `${name.padEnd(8)} ${value}`)
    .join('\n'),
);

const rows: Row[] = [];
let failed = 0;
for (const [name, part] of parts) {
  const show = (title: string, more: Row[]) => {
    rows.push(...more);
    printRows(title, more);
  };
  if (isInterrupted()) await ended;
  try {
    await part({ artifacts, runtimes, sizes, show });
  } catch (error) {
    // The other parts are still worth their time.
    failed++;
    const figure = { value: Number.NaN, unit: '', samples: 0, failures: 1, firstFailure: messageOf(error) };
    show(`${name} failed`, [{ what: name, where: '', figure }]);
  }
}
if (isInterrupted()) await ended;

printSideBySide(rows, runtimes);
const targets = targetsOf(rows, runtimes, Math.max(...sizes.memory.counts));
printTargets(targets);
const results = { at: new Date().toISOString(), environment: about, sizes, rows, targets };
console.log(`\nwritten to ${writeResults(path.join(import.meta.dirname, 'results'), results)}`);
process.exit(failed === 0 ? 0 : 1);

function readArguments() {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      runtime: { type: 'string' },
    },
  });
  const wanted = values.only?.split(',') ?? Object.keys(PARTS);
  const unknown = wanted.filter((name) => !(name in PARTS));
  const wantedRuntimes = RUNTIMES.filter((name) => values.runtime === undefined || name === values.runtime);
  if (unknown.length > 0 || wantedRuntimes.length === 0) {
    console.error(USAGE);
    process.exit(2);
  }
  return {
    parts: Object.entries<Part>(PARTS).filter(([name]) => wanted.includes(name)),
    wantedRuntimes,
    sizes: values.quick ? QUICK : FULL,
  };
}

async function versions({ runsc, crun }: Artifacts): Promise<Record<string, string>> {
  const firstLine = async (program: string | undefined, flag: string) => {
    if (program === undefined) return 'none';
    const { stdout, stderr } = await runCommand(program, [flag]);
    return (stdout || stderr).split('\n')[0] ?? '';
  };
  return {
    sandbar: version,
    runsc: runsc?.version ?? 'none',
    crun: await firstLine(crun, '--version'),
    docker: await firstLine(findProgram('dockerd'), '--version'),
    nginx: await firstLine(findProgram('nginx'), '-v'),
  };
}
