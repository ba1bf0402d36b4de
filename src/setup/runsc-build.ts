import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import { SandbarError } from '../core/errors.ts';
import { runBound } from './bound-command.ts';
import { findProgram } from './find-program.ts';
import type { Host } from './host.ts';
import { PrivateApt } from './private-apt.ts';

const MODULE = 'gvisor.dev/gvisor';
/** gVisor's branch that the go command can build; its main branch needs Bazel. */
const BRANCH = 'go';
/** From this version on, the go command fetches a newer toolchain by itself where a module asks for one. */
const LEAST_GO_MINOR = 21;

interface BuildPlace {
  /** Empty directory for everything the build needs; the caller removes it. */
  scratch: string;
  /** Keeps the version that the branch stood at first, so that a repeated set-up makes the same runsc. */
  versionFile: string;
}

/** Builds runsc from the Go module proxy. Gives the file, the module version it was made of and what was changed in it. */
export async function buildRunsc(
  host: Host,
  place: BuildPlace,
  say: (text: string) => void,
): Promise<{ file: string; version: string; changes: string[] }> {
  const go = await findGo(host, place.scratch, say);
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    GOPATH: path.join(place.scratch, 'gopath'),
    GOCACHE: path.join(place.scratch, 'gocache'),
    GOTMPDIR: path.join(place.scratch, 'tmp'),
    GOTOOLCHAIN: 'auto',
    GO111MODULE: 'on',
    CGO_ENABLED: '0',
  };
  delete env['GOROOT'];
  await mkdir(path.join(place.scratch, 'tmp'), { recursive: true });

  say('asking the module proxy for the newest version');
  const version = await resolveVersion(go, env, place);
  let downloads = 0;
  let compiled = 0;
  const options = {
    env,
    timeoutMs: 1_800_000,
    onLine: (line: string) => {
      if (line.startsWith('go: downloading')) say(`downloaded ${++downloads} modules`);
      else if (/^[\w.-]+\//.test(line)) say(`compiled ${++compiled} packages`);
    },
  };
  const module = await runBound(go, ['mod', 'download', '-json', `${MODULE}@${version}`], {
    ...options,
    cwd: place.scratch,
  });
  const source = path.join(place.scratch, 'source');
  // The module cache is read-only.
  await runCommand('cp', ['-r', '--no-preserve=mode', moduleDirectory(module.stdout), source]);
  const changes = await quietenIdleSandboxes(source);
  const file = path.join(place.scratch, 'bin/runsc');
  await runBound(
    go,
    [
      ...['build', '-v', '-trimpath', '-buildvcs=false', '-o', file],
      `-ldflags=-s -w -X ${MODULE}/runsc/version.version=${version}`,
      './runsc',
    ],
    { ...options, cwd: source },
  );
  return { file, version, changes };
}

function moduleDirectory(json: string): string {
  const described: unknown = JSON.parse(json.slice(json.indexOf('{')));
  if (typeof described === 'object' && described !== null && 'Dir' in described) return String(described.Dir);
  throw new SandbarError('internal', 'the go command does not say where it keeps the module');
}

/** Where systrap looks at its latencies, and how often. */
const SYSTRAP_METRICS = 'pkg/sentry/platform/systrap/metrics.go';
const OFTEN = /^(\s*recordingPeriod\s*=\s*)400 \* time\.Microsecond$/m;
const FOR_EVER = /^\tfor \{\n\t\ttime\.Sleep\(recordingPeriod\)$/m;

/** Looks a hundred times a second, and ever less often, down to six times, while there is nothing to see. */
const WHILE_ACTIVE = `	quiet := 0
	for {
		time.Sleep(recordingPeriod << min(quiet, 4))
		if latencies.stubBound.getMedian() == 0 && latencies.sentryBound.getMedian() == 0 {
			quiet++
		} else {
			quiet = 0
		}`;

/**
 * gVisor decides 2,500 times a second whether to spin for system calls, also for a sandbox that does nothing: measured at about two percent of a
 * processor each. Here it does so a hundred times a second, and less often while the sandbox rests. Where the source has changed, it is left as it is.
 */
async function quietenIdleSandboxes(source: string): Promise<string[]> {
  const file = path.join(source, SYSTRAP_METRICS);
  const text = existsSync(file) ? await readFile(file, 'utf8') : '';
  if (!OFTEN.test(text) || !FOR_EVER.test(text)) return [];
  const quieter = text
    .replace(OFTEN, (_, name: string) => `${name}10 * time.Millisecond`)
    .replace(FOR_EVER, () => WHILE_ACTIVE);
  await writeFile(file, quieter);
  return ['sandboxes look at their latencies 6 to 100 times a second instead of 2500'];
}

async function resolveVersion(go: string, env: NodeJS.ProcessEnv, place: BuildPlace): Promise<string> {
  if (existsSync(place.versionFile)) return (await readFile(place.versionFile, 'utf8')).trim();
  const { stdout } = await runCommand(go, ['list', '-m', '-f', '{{.Version}}', `${MODULE}@${BRANCH}`], {
    cwd: place.scratch,
    env,
    timeoutMs: 60_000,
  });
  const version = stdout.trim();
  if (!/^v[0-9A-Za-z.+-]+$/.test(version)) throw new SandbarError('internal', `unexpected module version '${version}'`);
  await writeFile(place.versionFile, `${version}\n`);
  return version;
}

/** The machine's go where it is new enough; else the distribution's package, unpacked for this build alone. */
async function findGo(host: Host, scratch: string, say: (text: string) => void): Promise<string> {
  for (const candidate of [findProgram('go'), '/usr/local/go/bin/go'])
    if (candidate !== undefined && existsSync(candidate) && (await goMinor(candidate)) >= LEAST_GO_MINOR)
      return candidate;

  say("fetching the distribution's go");
  const apt = await PrivateApt.open(host, path.join(scratch, 'apt'));
  const minors = (await apt.search(/^golang-1\.\d+-go$/)).map((name) => Number(/1\.(\d+)/.exec(name)?.[1]));
  const newest = Math.max(0, ...minors);
  if (newest < LEAST_GO_MINOR)
    throw new SandbarError('unavailable', `no go 1.${LEAST_GO_MINOR} or newer on this machine or in its packages`);
  const tree = await apt.unpack([`golang-1.${newest}-go`, `golang-1.${newest}-src`]);
  return path.join(tree, `usr/lib/go-1.${newest}/bin/go`);
}

async function goMinor(go: string): Promise<number> {
  const { stdout } = await runCommand(go, ['env', 'GOVERSION'], { env: { ...process.env, GOTOOLCHAIN: 'local' } });
  return Number(/^go1\.(\d+)/.exec(stdout)?.[1] ?? 0);
}
