import { type RuntimeName, settings } from '../src/core/config.ts';
import type { Artifacts } from '../src/setup/artifacts.ts';
import { startTestService, type TestService } from '../tests/support/service.ts';
import { measureBare } from './bare.ts';
import { measureClient } from './client.ts';
import { measureCreate } from './create.ts';
import { measureDocker } from './docker.ts';
import { type Docker, openDocker } from './docker-engine.ts';
import { measureGrowth } from './growth.ts';
import { measureInside } from './inside.ts';
import { measureLifecycle } from './lifecycle.ts';
import { measureMemory } from './memory.ts';
import { WHERE } from './names.ts';
import { measureNetwork } from './network.ts';
import type { Row } from './report.ts';
import type { Sizes } from './sizes.ts';
import { measureSustained } from './sustained.ts';
import { measureDockerBuilds, measureTemplates } from './templates.ts';
import { measureNginxTransfer, measureTransfer } from './transfer.ts';

export interface Run {
  artifacts: Artifacts;
  runtimes: readonly RuntimeName[];
  sizes: Sizes;
  show: (title: string, rows: Row[]) => void;
}

export type Part = (run: Run) => Promise<void>;

/** The pool is measured as it comes, and without one. */
const POOLS = [0, Number(settings.warmPool.fallback)];

/** What can be run alone, by `--only`; in this order, in which what is compared stands side by side: the machine is not as fast at every time. */
export const PARTS = {
  bare: (run) =>
    onRuntimes(run, async (runtime) => {
      run.show(`The bare runtime of ${runtime}`, await measureBare(run.artifacts, runtime, run.sizes.bare));
    }),
  create: (run) =>
    onPools(run, async (service, where, pool) => {
      run.show(`Create on ${where}`, await measureCreate(service, where, run.sizes.creates, pool > 0));
    }),
  docker: (run) => withDocker(run, 'Docker', (docker) => measureDocker(docker, run.sizes.docker)),
  inside: (run) =>
    onServices(run, {}, async (service, runtime) => {
      run.show(`Inside on ${runtime}`, await measureInside(service, runtime, run.sizes.inside));
    }),
  client: async (run) => run.show('The official client alone', await measureClient(run.sizes.creates)),
  sustained: (run) =>
    onPools(run, async (service, where) => {
      run.show(`Sustained on ${where}`, await measureSustained(service, where, run.sizes.sustainedSeconds));
    }),
  transfer: async (run) => {
    await onServices(run, {}, async (service, runtime) => {
      run.show(`Large files on ${runtime}`, await measureTransfer(service, runtime, run.sizes.transfer));
    });
    run.show('Large files beside', await measureNginxTransfer(run.sizes.transfer));
  },
  memory: (run) =>
    onServices(run, {}, async (service, runtime) => {
      run.show(`Memory on ${runtime}`, await measureMemory(service, runtime, run.sizes.memory));
    }),
  growth: (run) =>
    onRuntimes(run, async (runtime) => {
      run.show(`Growth of the store on ${runtime}`, await measureGrowth(runtime, run.sizes.growth));
    }),
  lifecycle: (run) =>
    onRuntimes(run, async (runtime) => {
      run.show(`Lifecycle on ${runtime}`, await measureLifecycle(runtime, run.sizes.lifecycle));
    }),
  network: (run) =>
    onRuntimes(run, async (runtime) => {
      run.show(`Network on ${runtime}`, await measureNetwork(runtime, run.sizes.network));
    }),
  templates: async (run) => {
    await onRuntimes(run, async (runtime) => {
      run.show(`Templates on ${runtime}`, await measureTemplates(runtime, run.sizes.templates));
    });
    await withDocker(run, 'Templates beside', (docker) => measureDockerBuilds(docker, run.sizes.templates));
  },
} satisfies Record<string, Part>;

async function onRuntimes({ runtimes }: Run, measure: (runtime: RuntimeName) => Promise<void>): Promise<void> {
  for (const runtime of runtimes) await measure(runtime);
}

/** A service of its own for each runtime. */
function onServices(
  run: Run,
  env: Record<string, string>,
  measure: (service: TestService, runtime: RuntimeName) => Promise<void>,
): Promise<void> {
  return onRuntimes(run, async (runtime) => {
    const service = await startTestService({ runtime, env });
    try {
      await measure(service, runtime);
    } finally {
      await service.dispose();
    }
  });
}

/** Each runtime without and with a pool. */
async function onPools(
  run: Run,
  measure: (service: TestService, where: string, pool: number) => Promise<void>,
): Promise<void> {
  for (const pool of POOLS)
    await onServices(run, { SANDBAR_WARM_POOL: String(pool) }, (service, runtime) =>
      measure(service, pool === 0 ? WHERE.cold(runtime) : WHERE.warm(runtime), pool),
    );
}

async function withDocker(run: Run, title: string, measure: (docker: Docker) => Promise<Row[]>): Promise<void> {
  const docker = await openDocker(run.artifacts.baseTemplate.rootfs);
  if ('absent' in docker) return run.show(title, [{ what: 'docker', where: WHERE.docker, note: docker.absent }]);
  try {
    run.show(`${title} (${docker.version})`, await measure(docker));
  } finally {
    await docker.close();
  }
}
