import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { runCommand } from '../src/core/command.ts';
import type { RuntimeName } from '../src/core/config.ts';
import { ControlGroups } from '../src/node/cgroup.ts';
import { IDS_PER_SANDBOX } from '../src/node/runtime/container.ts';
import type { BootRequest } from '../src/node/runtime/contract.ts';
import { AGENT_PATH, baseSpec, CAPABILITIES, type OciSpec } from '../src/node/runtime/oci-spec.ts';
import { seccompProfile } from '../src/node/runtime/seccomp.ts';
import type { Artifacts } from '../src/setup/artifacts.ts';
import { closedAtLast } from './closing.ts';
import { TRUE_IN_A_LOGIN_SHELL, WHAT, WHERE } from './names.ts';
import type { Row } from './report.ts';
import { repeat, timed } from './statistics.ts';

const FIRST_ID = 2 ** 28;
/** Only looked at: nothing is made in them. */
const groups = new ControlGroups('bench');

/** A runtime as it is called from a shell, without anything of ours around it. */
interface BareRuntime {
  program: string;
  /** Words before the verb. */
  words: string[];
  spec: (args: readonly string[]) => object;
}

/**
 * The floor: `runsc` and `crun` alone on the base template's files, with a bundle of the shape of ours. Made ahead for all, so
 * that it costs the floor nothing: a network namespace and, for crun, the merged root.
 */
export async function measureBare(artifacts: Artifacts, runtime: RuntimeName, samples: number): Promise<Row[]> {
  const where = WHERE.bare(runtime);
  if ((runtime === 'gvisor' ? artifacts.runsc : artifacts.crun) === undefined)
    return [{ what: WHAT.start, where, note: 'it is not on this machine' }];
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-bench-'));
  // A user namespace has to pass through it.
  chmodSync(directory, 0o711);
  const netns = `sandbar-bench-${process.pid}`;
  const root = path.join(directory, 'root');
  const bare = runtime === 'gvisor' ? runsc(artifacts, directory, netns) : crun(artifacts, directory, root, netns);
  const ready = prepare(artifacts, directory, root, netns);
  const close = closedAtLast(async () => {
    await ready.catch(() => undefined);
    const { stdout } = await runCommand(bare.program, [...bare.words, 'list', '--quiet']);
    for (const id of stdout.split('\n').filter(Boolean))
      await runCommand(bare.program, [...bare.words, 'delete', '--force', id]);
    await runCommand('ip', ['netns', 'del', netns], { okStatuses: [0, 1] });
    await runCommand('umount', ['--lazy', root], { okStatuses: [0, 32] });
    rmSync(directory, { recursive: true, force: true });
  });
  try {
    await ready;
    return await measure(bare, directory, where, samples);
  } finally {
    await close();
  }
}

async function measure(bare: BareRuntime, directory: string, where: string, samples: number): Promise<Row[]> {
  const bundle = path.join(directory, 'bundle');
  mkdirSync(bundle);
  const write = (args: readonly string[]) =>
    writeFileSync(path.join(bundle, 'config.json'), JSON.stringify(bare.spec(args)));
  const call = (...words: string[]) => runCommand(bare.program, [...bare.words, ...words], { discardOutput: true });
  const start = (id: string) => call('run', '--detach', '--bundle', bundle, id);
  const remove = (id: string) => call('delete', '--force', id);

  write(['/bin/sleep', 'infinity']);
  const starts = await repeat(samples, async (index) => {
    const { ms } = await timed(() => start(`start${index}`));
    await remove(`start${index}`);
    return ms;
  });
  await start('kept');
  const execs = await repeat(
    samples,
    async () => (await timed(() => call('exec', 'kept', ...TRUE_IN_A_LOGIN_SHELL))).ms,
  );
  await remove('kept');
  write(['/bin/true']);
  const runs = await repeat(
    samples,
    async (index) => (await timed(() => call('run', '--bundle', bundle, `run${index}`))).ms,
  );
  return [
    { what: WHAT.start, where, summary: starts, note: 'run --detach' },
    { what: 'run /bin/true to its end', where, summary: runs },
    { what: WHAT.exec, where, summary: execs },
  ];
}

function runsc({ runsc, baseTemplate, agent }: Artifacts, directory: string, netns: string): BareRuntime {
  return {
    program: runsc?.path ?? '',
    words: [
      `--root=${directory}/state`,
      '--platform=systrap',
      '--network=sandbox',
      '--ignore-cgroups',
      `--overlay2=root:dir=${directory},size=1024m`,
      '--allow-suid',
      '--net-raw',
      '--host-settings=ignore',
    ],
    spec: (args) => specOf(args, baseTemplate.rootfs, agent, netns),
  };
}

function crun(
  { crun = '', hostHelper, agent }: Artifacts,
  directory: string,
  root: string,
  netns: string,
): BareRuntime {
  const words = [crun, '--cgroup-manager=disabled', `--root=${directory}/state`];
  // crun refuses a machine that mixes both versions of control groups; it is shown one of them, as ours is.
  const [program = '', ...more] = groups.hybrid ? [hostHelper, 'enter', '--cgroup2-view', '--', ...words] : words;
  const ids = [{ containerID: 0, hostID: FIRST_ID, size: IDS_PER_SANDBOX }];
  return {
    program,
    words: more,
    spec: (args) => {
      const spec = specOf(args, root, agent, netns);
      spec.linux.namespaces.push({ type: 'user' }, { type: 'cgroup' });
      return { ...spec, linux: { ...spec.linux, uidMappings: ids, gidMappings: ids, seccomp: seccompProfile() } };
    },
  };
}

/** A network namespace, and an overlay of the template with a place for the agent: a user namespace owns nothing to make it in. */
async function prepare({ baseTemplate }: Artifacts, directory: string, root: string, netns: string): Promise<void> {
  await runCommand('ip', ['netns', 'add', netns]);
  const upper = path.join(directory, 'upper');
  for (const place of [path.join(upper, path.dirname(AGENT_PATH)), path.join(directory, 'work'), root])
    mkdirSync(place, { recursive: true });
  writeFileSync(path.join(upper, AGENT_PATH), '');
  const options = `lowerdir=${baseTemplate.rootfs},upperdir=${upper},workdir=${directory}/work`;
  await runCommand('mount', ['-t', 'overlay', 'overlay', '-o', options, root]);
}

function specOf(args: readonly string[], root: string, agentFile: string, netns: string): OciSpec {
  const request: BootRequest = {
    sandboxId: 'bare',
    directory: '/nowhere',
    layers: [],
    cpuCount: 2,
    memoryMb: 1024,
    diskSizeMb: 1024,
    netnsFile: `/run/netns/${netns}`,
    idBase: FIRST_ID,
    group: groups.group('bare'),
    agentFile,
    agentSecret: '',
  };
  const spec = baseSpec(request, root, CAPABILITIES);
  return { ...spec, process: { ...spec.process, args: [...args], env: ['PATH=/usr/bin:/bin'] } };
}
