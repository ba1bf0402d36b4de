import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Sandbox, Template, waitForPort } from 'e2b';
import type { RuntimeName } from '../src/core/config.ts';
import { startTestService, type TestService } from '../tests/support/service.ts';
import { type Docker, IMAGE } from './docker-engine.ts';
import { WHAT, WHERE } from './names.ts';
import type { Row } from './report.ts';
import { repeat, timed } from './statistics.ts';

/** A small Dockerfile that needs no network. `mark` makes its last step new. */
const dockerfile = (base: string, mark = '') =>
  [
    `FROM ${base}`,
    'ENV NAME=value',
    'WORKDIR /srv/app',
    'COPY data.txt /srv/app/',
    'RUN python3 -m venv --without-pip /opt/venv',
    'RUN mkdir -p /srv/made && for i in $(seq 1 500); do echo $i > /srv/made/$i; done',
    `RUN cat data.txt > copied && echo ${mark || 'end'}`,
    '',
  ].join('\n');

const BUILT = 'sandbar-bench-built';

/** Builds of one Dockerfile: all steps, none of them, the last of them; and what a start command captured warm is worth. */
export async function measureTemplates(runtime: RuntimeName, samples: number): Promise<Row[]> {
  const directory = makeContext();
  try {
    const service = await startTestService({ runtime });
    try {
      return await ours(service, runtime, directory, samples);
    } finally {
      await service.dispose();
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function ours(service: TestService, runtime: RuntimeName, directory: string, samples: number): Promise<Row[]> {
  const where = runtime;
  const build = async (mark: string, skipCache: boolean) => {
    const template = Template({ fileContextPath: directory }).fromDockerfile(dockerfile('e2bdev/base', mark));
    return (await timed(() => Template.build(template, 'bench', { ...service.connection, skipCache }))).ms;
  };
  await build('', false);
  const rows: Row[] = [
    { what: WHAT.buildAll, where, summary: await repeat(samples, () => build('', true)) },
    { what: WHAT.buildNothing, where, summary: await repeat(samples, () => build('', false)) },
    { what: WHAT.buildLast, where, summary: await repeat(samples, (index) => build(`n${index}`, false)) },
  ];
  const server = Template().fromBaseImage().setStartCmd('sleep 5; exec python3 -m http.server 8000', waitForPort(8000));
  await Template.build(server, 'bench-server', service.connection);
  const summary = await repeat(samples, async () => {
    const before = performance.now();
    const sandbox = await Sandbox.create('bench-server', service.connection);
    try {
      const answer = await service.fetchInside(sandbox.sandboxId, '/', {}, 8000);
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      return performance.now() - before;
    } finally {
      await sandbox.kill();
    }
  });
  rows.push({
    what: 'create → answer of a server that starts in 5 s',
    where,
    summary,
    ...(runtime === 'container' && { note: 'the command runs again in each container' }),
  });
  return rows;
}

/** `docker build` of the same file, as far as its engine can: without a network. */
export async function measureDockerBuilds(docker: Docker, samples: number): Promise<Row[]> {
  const directory = makeContext();
  const where = WHERE.docker;
  const note = 'docker build --network=none';
  const build = async (mark: string, more: string[]) => {
    writeFileSync(path.join(directory, 'Dockerfile'), dockerfile(IMAGE, mark));
    const words = ['build', '--network=none', '--quiet', '--tag', BUILT, ...more, directory];
    return (await timed(() => docker.call(...words))).ms;
  };
  try {
    await build('', []);
    return [
      { what: WHAT.buildAll, where, summary: await repeat(samples, () => build('', ['--no-cache'])), note },
      { what: WHAT.buildNothing, where, summary: await repeat(samples, () => build('', [])), note },
      { what: WHAT.buildLast, where, summary: await repeat(samples, (index) => build(`n${index}`, [])), note },
    ];
  } finally {
    await docker.call('image', 'rm', '--force', BUILT);
    rmSync(directory, { recursive: true, force: true });
  }
}

function makeContext(): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-bench-'));
  writeFileSync(path.join(directory, 'data.txt'), 'data\n');
  return directory;
}
