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

/** Builds runsc from the Go module proxy. Gives the file and the module version it was made of. */
export async function buildRunsc(
  host: Host,
  place: BuildPlace,
  say: (text: string) => void,
): Promise<{ file: string; version: string }> {
  const go = await findGo(host, place.scratch, say);
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    GOPATH: path.join(place.scratch, 'gopath'),
    GOCACHE: path.join(place.scratch, 'gocache'),
    GOBIN: path.join(place.scratch, 'bin'),
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
  await runBound(
    go,
    [
      ...['install', '-v', '-trimpath', '-buildvcs=false'],
      `-ldflags=-s -w -X ${MODULE}/runsc/version.version=${version}`,
      `${MODULE}/runsc@${version}`,
    ],
    {
      cwd: place.scratch,
      env,
      timeoutMs: 1_800_000,
      onLine: (line) => {
        if (line.startsWith('go: downloading')) say(`downloaded ${++downloads} modules`);
        else if (!line.startsWith('go:')) say(`compiled ${++compiled} packages`);
      },
    },
  );
  return { file: path.join(place.scratch, 'bin/runsc'), version };
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
