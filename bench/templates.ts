import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox, Template, waitForPort } from 'e2b';
import { runCommand } from '../src/core/command.ts';
import type { RuntimeName } from '../src/core/config.ts';
import type { Artifacts } from '../src/setup/artifacts.ts';
import { startTestService, type TestService } from '../tests/support/service.ts';
import type { Row } from './report.ts';
import { repeat, summarize, timed } from './statistics.ts';

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

/** Builds of one Dockerfile: all steps, none of them, the last of them; and what a start command captured warm is worth. */
export async function measureTemplates(artifacts: Artifacts, runtimes: RuntimeName[], samples: number): Promise<Row[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-bench-'));
  writeFileSync(path.join(directory, 'data.txt'), 'data\n');
  try {
    const rows: Row[] = [];
    for (const runtime of runtimes) {
      const service = await startTestService({ runtime });
      try {
        rows.push(...(await ours(service, runtime, directory, samples)));
      } finally {
        await service.dispose();
      }
    }
    return [...rows, ...(await docker(artifacts, directory, samples))];
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function ours(service: TestService, runtime: RuntimeName, directory: string, samples: number): Promise<Row[]> {
  const where = `sandbar, ${runtime}`;
  const build = async (mark: string, skipCache: boolean) => {
    const template = Template({ fileContextPath: directory }).fromDockerfile(dockerfile('e2bdev/base', mark));
    return (await timed(() => Template.build(template, 'bench', { ...service.connection, skipCache }))).ms;
  };
  await build('', false);
  const rows: Row[] = [
    { what: 'build, every step', where, summary: await repeat(samples, () => build('', true)) },
    { what: 'build, nothing changed', where, summary: await repeat(samples, () => build('', false)) },
    { what: 'build, last step changed', where, summary: await repeat(samples, (index) => build(`n${index}`, false)) },
  ];
  const server = Template().fromBaseImage().setStartCmd('sleep 5; exec python3 -m http.server 8000', waitForPort(8000));
  await Template.build(server, 'bench-server', service.connection);
  const times: number[] = [];
  for (let index = 0; index < samples; index++) {
    const { ms, value } = await timed(async () => {
      const sandbox = await Sandbox.create('bench-server', service.connection);
      const answer = await service.fetchInside(sandbox.sandboxId, '/', {}, 8000);
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      return sandbox;
    });
    times.push(ms);
    await value.kill();
  }
  rows.push({
    what: 'create → answer of a server that starts in 5 s',
    where,
    summary: summarize(times),
    ...(runtime === 'container' && { note: 'the command runs again in each container' }),
  });
  return rows;
}

/** `docker build` of the same file on the same machine, where its engine can be started. */
async function docker(artifacts: Artifacts, context: string, samples: number): Promise<Row[]> {
  const absent = (why: string): Row[] => [{ what: 'docker build', where: 'docker', value: '–', note: why }];
  const found = await runCommand('sh', ['-c', 'command -v dockerd && command -v docker'], { okStatuses: [0, 1, 127] });
  if (found.status !== 0) return absent('docker.io is not installed: nothing to compare with');
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-docker-'));
  const host = `unix://${directory}/docker.sock`;
  const words = ['-H', host, '--data-root', `${directory}/data`, '--exec-root', `${directory}/exec`];
  const engine = spawn('dockerd', [...words, '--pidfile', `${directory}/pid`, '--bridge=none', '--iptables=false'], {
    stdio: 'ignore',
  });
  try {
    for (let waited = 0; ; waited++) {
      if (engine.exitCode !== null || waited > 60) return absent('its engine does not start on this machine');
      const up = await runCommand('docker', ['-H', host, 'version'], { okStatuses: [0, 1] });
      if (up.status === 0) break;
      await delay(500);
    }
    const pack = `tar -C '${artifacts.baseTemplate.rootfs}' -c . | docker -H '${host}' import - base`;
    await runCommand('sh', ['-c', pack], { timeoutMs: 300_000 });
    const build = async (mark: string, more: string[]) => {
      writeFileSync(path.join(context, 'Dockerfile'), dockerfile('base', mark));
      const args = ['-H', host, 'build', '--network=none', '--quiet', ...more, context];
      return (await timed(() => runCommand('docker', args, { timeoutMs: 300_000 }))).ms;
    };
    await build('', []);
    return [
      {
        what: 'build, every step',
        where: 'docker build',
        summary: await repeat(samples, () => build('', ['--no-cache'])),
      },
      { what: 'build, nothing changed', where: 'docker build', summary: await repeat(samples, () => build('', [])) },
      {
        what: 'build, last step changed',
        where: 'docker build',
        summary: await repeat(samples, (index) => build(`n${index}`, [])),
      },
    ];
  } finally {
    engine.kill('SIGTERM');
    await Promise.race([new Promise((resolve) => engine.once('exit', resolve)), delay(20_000)]);
    const mounts = `awk '{print $2}' /proc/mounts | grep '^${directory}/' | sort -r | xargs -r umount -l`;
    await runCommand('sh', ['-c', mounts], { okStatuses: [0, 1, 123] });
    rmSync(directory, { recursive: true, force: true });
  }
}
