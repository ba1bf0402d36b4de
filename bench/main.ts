import { parseArgs } from 'node:util';
import { version } from '../src/cli/version.ts';
import { loadConfig, type RuntimeName } from '../src/core/config.ts';
import { locateArtifacts } from '../src/setup/artifacts.ts';
import { startTestService } from '../tests/support/service.ts';
import { measureCreate, measureSustained } from './create.ts';
import { measureInside } from './inside.ts';
import { measureLifecycle } from './lifecycle.ts';
import { measureMemory } from './memory.ts';
import { measurePeers } from './peers.ts';
import { environment, printTable, type Row, writeResults } from './report.ts';
import { measureTemplates } from './templates.ts';

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    runtime: { type: 'string' },
  },
});
const size = values.quick
  ? {
      creates: 10,
      execs: 20,
      memory: [1, 5],
      seconds: 5,
      peers: 3,
      lifecycle: { memoryMb: [50], rounds: 3, forks: [1, 10] },
    }
  : {
      creates: 100,
      execs: 100,
      memory: [1, 50, 200],
      seconds: 60,
      peers: 20,
      lifecycle: { memoryMb: [50, 500, 2000], rounds: 5, forks: [1, 10, 100] },
    };
const wanted = (name: string) => values.only === undefined || values.only.split(',').includes(name);

const artifacts = locateArtifacts(loadConfig(process.env));
const about = environment({ sandbar: version, runsc: artifacts.runsc?.version ?? 'none' });
console.log(
  Object.entries(about)
    .map(([name, value]) => `${name.padEnd(8)} ${value}`)
    .join('\n'),
);

const rows: Row[] = [];
const show = (title: string, more: Row[]) => {
  rows.push(...more);
  printTable(title, more);
};

const runtimes: RuntimeName[] =
  values.runtime === undefined ? ['container', 'gvisor'] : [values.runtime as RuntimeName];
for (const runtime of runtimes) {
  for (const pool of [0, 16]) {
    const where = `${runtime}, ${pool === 0 ? 'cold' : 'warm pool'}`;
    if (!wanted('create')) continue;
    const service = await startTestService({ runtime, env: { SANDBAR_WARM_POOL: String(pool) } });
    try {
      show(`Create on ${where}`, await measureCreate(service, where, size.creates));
      show(`Sustained on ${where}`, [await measureSustained(service, where, size.seconds)]);
    } finally {
      await service.dispose();
    }
  }
  const service = await startTestService({ runtime });
  try {
    if (wanted('inside')) show(`Inside on ${runtime}`, await measureInside(service, runtime, size.execs));
    if (wanted('memory')) show(`Memory on ${runtime}`, await measureMemory(service, runtime, size.memory));
  } finally {
    await service.dispose();
  }
}
if (wanted('lifecycle'))
  for (const runtime of runtimes) show(`Lifecycle on ${runtime}`, await measureLifecycle(runtime, size.lifecycle));
if (wanted('templates')) show('Templates', await measureTemplates(artifacts, runtimes, values.quick ? 3 : 10));
if (wanted('peers')) show('Beside', await measurePeers(artifacts, size.peers));
console.log(
  `\nwritten to ${writeResults('bench/results', { at: new Date().toISOString(), environment: about, rows })}`,
);
process.exit(0);
