import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type CommandResult, runCommand } from '../src/core/command.ts';
import { findProgram } from '../src/setup/find-program.ts';
import { closedAtLast } from './closing.ts';

/** A Docker engine that has the base template as an image. */
export interface Docker {
  version: string;
  call: (...words: string[]) => Promise<CommandResult>;
  close: () => Promise<void>;
}

export const IMAGE = 'sandbar-bench-base';
const START_WAIT_MS = 30_000;
const STOP_WAIT_MS = 20_000;
const CALL_TIMEOUT_MS = 600_000;
const CGROUP = 'sandbar-bench-docker';

/** The engine that answers, or one started for the time of the run; otherwise why there is none. */
export async function openDocker(rootfs: string): Promise<Docker | { absent: string }> {
  const client = findProgram('docker');
  if (client === undefined) return { absent: 'docker is not installed' };
  const present = await versionOf(client, []);
  const engine = present === undefined ? await startEngine(client) : { flags: [], stop: async () => undefined };
  if ('absent' in engine) return engine;
  const call = (...words: string[]) => runCommand(client, [...engine.flags, ...words], { timeoutMs: CALL_TIMEOUT_MS });
  const close = closedAtLast(async () => {
    if (present !== undefined) await call('image', 'rm', '--force', IMAGE);
    await engine.stop();
  });
  try {
    const tar = spawn('tar', ['-C', rootfs, '-c', '.'], { stdio: ['ignore', 'pipe', 'ignore'] });
    await runCommand(client, [...engine.flags, 'import', '-', IMAGE], {
      input: tar.stdout,
      timeoutMs: CALL_TIMEOUT_MS,
    });
  } catch (error) {
    await close();
    throw error;
  }
  return { version: (await versionOf(client, engine.flags)) ?? 'unknown', call, close };
}

/** An engine of the bench's own: its directories are temporary, and it leaves the machine's network and packet rules alone. */
async function startEngine(
  client: string,
): Promise<{ flags: string[]; stop: () => Promise<void> } | { absent: string }> {
  const program = findProgram('dockerd');
  if (program === undefined) return { absent: 'docker.io is not installed and no engine answers' };
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-docker-'));
  const flags = ['--host', `unix://${directory}/socket`];
  const places = [
    '--data-root',
    `${directory}/data`,
    '--exec-root',
    `${directory}/exec`,
    '--pidfile',
    `${directory}/pid`,
  ];
  const alone = ['--bridge=none', '--iptables=false', '--ip6tables=false', '--ip-forward=false', '--ip-masq=false'];
  const child = spawn(program, [...flags, ...places, ...alone, '--cgroup-parent', `/${CGROUP}`], { stdio: 'ignore' });
  const ended = once(child, 'exit');
  const stop = closedAtLast(async () => {
    child.kill('SIGTERM');
    const patience = setTimeout(() => child.kill('SIGKILL'), STOP_WAIT_MS);
    await ended;
    clearTimeout(patience);
    await clearAway(directory);
  });
  const giveUpAt = Date.now() + START_WAIT_MS;
  while ((await versionOf(client, flags)) === undefined) {
    if (child.exitCode === null && Date.now() < giveUpAt) await delay(200);
    else {
      await stop();
      return { absent: 'dockerd is installed and does not start on this machine' };
    }
  }
  return { flags, stop };
}

async function versionOf(client: string, flags: readonly string[]): Promise<string | undefined> {
  const words = [...flags, 'version', '--format', '{{.Server.Version}}'];
  const { status, stdout } = await runCommand(client, words, { okStatuses: [0, 1], timeoutMs: 10_000 });
  return status === 0 ? stdout.trim() : undefined;
}

/** An engine that was ended leaves mounts and control groups. */
async function clearAway(directory: string): Promise<void> {
  const { stdout } = await runCommand('findmnt', ['--list', '--noheadings', '--output', 'TARGET']);
  const mounts = stdout.split('\n').filter((target) => target.startsWith(`${directory}/`));
  for (const target of mounts.reverse()) await runCommand('umount', ['--lazy', target]);
  const root = '/sys/fs/cgroup';
  for (const hierarchy of [root, ...readdirSync(root).map((name) => path.join(root, name))])
    try {
      rmdirSync(path.join(hierarchy, CGROUP));
    } catch {
      // Not in this hierarchy.
    }
  rmSync(directory, { recursive: true, force: true });
}
