import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { runCommand } from '../src/core/command.ts';
import type { Artifacts } from '../src/setup/artifacts.ts';
import type { Row } from './report.ts';
import { repeat, timed } from './statistics.ts';

/** What a user would take instead, measured in the same run: Docker where its engine can be started, and the bare runtimes as the floor. */
export async function measurePeers(artifacts: Artifacts, samples: number): Promise<Row[]> {
  return [...(await bareRuntimes(artifacts, samples)), ...(await docker(artifacts, samples))];
}

/** `runsc run` and `crun run` of the base template's /bin/true: nothing of ours around it. */
async function bareRuntimes(artifacts: Artifacts, samples: number): Promise<Row[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-bench-'));
  const rows: Row[] = [];
  try {
    writeFileSync(path.join(directory, 'config.json'), JSON.stringify(bareSpec(artifacts.baseTemplate.rootfs)));
    const { runsc, crun, hostHelper } = artifacts;
    if (runsc !== undefined) {
      const flags = [
        `--root=${directory}/runsc`,
        '--network=none',
        '--ignore-cgroups',
        '--overlay2=root:memory',
        '--platform=systrap',
      ];
      rows.push({
        what: 'run /bin/true',
        where: 'bare runsc',
        summary: await repeat(samples, async (index) => {
          const { ms } = await timed(() =>
            runCommand(runsc.path, [...flags, 'run', '--bundle', directory, `bench${index}`]),
          );
          return ms;
        }),
      });
    }
    if (crun !== undefined) {
      const command = ['enter', '--cgroup2-view', '--', crun, '--cgroup-manager=disabled', `--root=${directory}/crun`];
      rows.push({
        what: 'run /bin/true',
        where: 'bare crun',
        summary: await repeat(samples, async (index) => {
          const { ms } = await timed(() =>
            runCommand(hostHelper, [...command, 'run', `--bundle=${directory}`, `bench${index}`]),
          );
          return ms;
        }),
      });
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  return rows;
}

function bareSpec(rootfs: string) {
  return {
    ociVersion: '1.0.2',
    process: { terminal: false, user: { uid: 0, gid: 0 }, args: ['/bin/true'], env: ['PATH=/usr/bin:/bin'], cwd: '/' },
    root: { path: rootfs, readonly: true },
    mounts: [{ destination: '/proc', type: 'proc', source: 'proc' }],
    linux: { namespaces: ['pid', 'ipc', 'uts', 'mount', 'network'].map((type) => ({ type })) },
  };
}

/** Docker's own engine, started on a directory of its own and ended again; absent is said. */
async function docker(artifacts: Artifacts, samples: number): Promise<Row[]> {
  const absent = (why: string): Row[] => [{ what: 'docker', where: 'docker', value: '–', note: why }];
  const found = await runCommand('sh', ['-c', 'command -v dockerd && command -v docker'], { okStatuses: [0, 1, 127] });
  if (found.status !== 0) return absent('docker.io is not installed: nothing to compare with');
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-docker-'));
  const host = `unix://${directory}/docker.sock`;
  const engine = spawn(
    'dockerd',
    [
      '-H',
      host,
      '--data-root',
      `${directory}/data`,
      '--exec-root',
      `${directory}/exec`,
      '--pidfile',
      `${directory}/pid`,
      '--bridge=none',
      '--iptables=false',
    ],
    { stdio: 'ignore' },
  );
  const call = (...words: string[]) => runCommand('docker', ['-H', host, ...words], { timeoutMs: 300_000 });
  try {
    for (let waited = 0; ; waited++) {
      if (engine.exitCode !== null || waited > 60) return absent('its engine does not start on this machine');
      const up = await runCommand('docker', ['-H', host, 'version'], { okStatuses: [0, 1] });
      if (up.status === 0) break;
      await delay(500);
    }
    await runCommand(
      'sh',
      ['-c', `tar -C '${artifacts.baseTemplate.rootfs}' -c . | docker -H '${host}' import - base`],
      { timeoutMs: 300_000 },
    );
    const rows: Row[] = [];
    for (const [what, command] of [
      ['create → first command (node -v)', ['node', '-v']],
      ['run /bin/true', ['/bin/true']],
    ] as const) {
      const summary = await repeat(
        samples,
        async () => (await timed(() => call('run', '--rm', '--network=none', 'base', ...command))).ms,
      );
      rows.push({ what, where: 'docker run', summary });
    }
    await call('run', '-d', '--name', 'kept', '--network=none', 'base', 'sleep', '3600');
    rows.push({
      what: 'exec true',
      where: 'docker exec',
      summary: await repeat(samples, async () => (await timed(() => call('exec', 'kept', 'true'))).ms),
    });
    await call('rm', '-f', 'kept');
    return rows;
  } finally {
    engine.kill('SIGTERM');
    await Promise.race([new Promise((resolve) => engine.once('exit', resolve)), delay(20_000)]);
    await runCommand(
      'sh',
      ['-c', `awk '{print $2}' /proc/mounts | grep '^${directory}/' | sort -r | xargs -r umount -l`],
      { okStatuses: [0, 1, 123] },
    );
    rmSync(directory, { recursive: true, force: true });
  }
}
