import { createHash } from 'node:crypto';
import { messageOf } from '../core/errors.ts';
import { BuildFailure } from './build/failure.ts';
import { type InlineFile, inlineArchive } from './build/inline-archive.ts';
import type { Saying } from './build/log.ts';
import { newLayerName } from './build/perform.ts';
import { type BuildResources, BuildSandbox, type BuildSandboxParts, endOf } from './build/sandbox.ts';

/** Bumped when what is done to a foreign image changes. */
const PROCEDURE = 1;

const PACKAGES_TIMEOUT_MS = 600_000;
const RESOURCES: BuildResources = { cpuCount: 2, memoryMb: 1024, diskSizeMb: 4096 };
const FILES_LIMIT_BYTES = 1024 * 1024;

/** Programs that sandboxes are expected to have, with the packages they are in. What the ready commands of clients call is among them. */
const PROGRAMS: { path: string[]; package: string; alpine?: string; fedora?: string }[] = [
  { path: ['/bin/bash'], package: 'bash' },
  { path: ['/usr/bin/sudo', '/bin/sudo'], package: 'sudo' },
  { path: ['/usr/bin/curl', '/bin/curl'], package: 'curl' },
  { path: ['/usr/bin/ss', '/bin/ss', '/usr/sbin/ss', '/sbin/ss'], package: 'iproute2', fedora: 'iproute' },
  { path: ['/usr/bin/pgrep', '/bin/pgrep'], package: 'procps', fedora: 'procps-ng' },
  { path: ['/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt'], package: 'ca-certificates' },
];

const BASHRC = '# Read by every bash that is a login shell or interactive.\n';
const PROFILE = '[ -n "$BASH_VERSION" ] && [ -r "$HOME/.bashrc" ] && . "$HOME/.bashrc"\n:\n';

/** Hash of what a set-up of these layers would leave. */
export function setUpKey(layers: readonly string[]): string {
  return createHash('sha256')
    .update(JSON.stringify({ setUp: PROCEDURE, layers }))
    .digest('hex');
}

const SHELLS = ['/bin/bash', '/usr/bin/bash', '/bin/sh'];

/**
 * Makes the tree of a foreign image one that a sandbox can have as its root: the user `user` with sudo, the files that name servers and host are in, and
 * the programs that clients count on, where they can be installed. Resolves to the layers that this adds.
 */
export async function setUpGuest(
  parts: BuildSandboxParts,
  layers: readonly string[],
  say: (saying: Saying) => void,
  signal: AbortSignal,
): Promise<string[]> {
  const { machine } = parts;
  const files = newLayerName();
  let missing: string[] = [];
  await machine.layers.derive(files, layers, async (root) => {
    const { edits } = machine;
    if ((await edits.existing(root, SHELLS, signal)).size === 0)
      throw new BuildFailure('the image has no shell: sandboxes need one', 'base');
    await edits.ensureUser(root, 'user', { sudo: true }, signal);
    const optional = ['/home/user/.profile', '/home/user/.bashrc', '/etc/profile'];
    const there = await edits.existing(root, [...optional, ...PROGRAMS.flatMap(({ path }) => path)], signal);
    await edits.copy(root, inlineArchive(rootFiles(there)), copyOf('root'), signal);
    const ofUser = userFiles(there);
    if (ofUser.length > 0) await edits.copy(root, inlineArchive(ofUser), copyOf('user'), signal);
    await edits.openUp(root, ['/usr/local', '/code', '/tmp'], signal);
    missing = PROGRAMS.filter(({ path }) => !path.some((each) => there.has(each))).map((each) => each.package);
    return true;
  });
  if (missing.length === 0) return [files];
  say({ level: 'info', message: `installing what the image lacks: ${missing.join(' ')}` });
  const packages = await install(parts, [...layers, files], missing, say, signal);
  return packages === undefined ? [files] : [files, packages];
}

/** The layer of the packages; undefined where they could not be installed and the image can do without. */
async function install(
  parts: BuildSandboxParts,
  layers: string[],
  missing: string[],
  say: (saying: Saying) => void,
  signal: AbortSignal,
): Promise<string | undefined> {
  const layer = newLayerName();
  const sandbox = await BuildSandbox.boot(parts, layers, RESOURCES, { templateId: 'image', buildId: 'image' }, signal);
  let why: string | undefined;
  try {
    const end = await sandbox.run(
      {
        command: ['/bin/sh', '-c', installScript(missing)],
        user: 'root',
        workdir: '/',
        env: { DEBIAN_FRONTEND: 'noninteractive' },
        timeoutMs: PACKAGES_TIMEOUT_MS,
        onLine: (stream, line) => say({ level: 'debug', message: `[${stream}]: ${line}` }),
      },
      signal,
    );
    why = endOf(end, PACKAGES_TIMEOUT_MS);
    if (why === undefined) {
      await sandbox.exportLayer(layer, signal);
      return layer;
    }
  } catch (error) {
    signal.throwIfAborted();
    why = messageOf(error);
  } finally {
    await sandbox.destroy();
  }
  if (missing.includes('bash'))
    throw new BuildFailure(`the image has no bash, and it could not be installed: ${why}`, 'base');
  say({ level: 'warn', message: `${missing.join(' ')} could not be installed (${why}): the image is used without` });
  return undefined;
}

function installScript(missing: readonly string[]): string {
  const names = (kind?: 'alpine' | 'fedora') =>
    PROGRAMS.filter((each) => missing.includes(each.package))
      .map((each) => (kind && each[kind]) || each.package)
      .join(' ');
  return `
if command -v apt-get >/dev/null; then
  apt-get -o Acquire::Retries=1 -o Acquire::http::Timeout=15 update &&
  apt-get install -y --no-install-recommends ${names()} && rm -rf /var/lib/apt/lists/*
elif command -v apk >/dev/null; then apk add --no-cache ${names('alpine')}
elif command -v dnf >/dev/null; then dnf install -y ${names('fedora')} && dnf clean all
elif command -v microdnf >/dev/null; then microdnf install -y ${names('fedora')} && microdnf clean all
elif command -v yum >/dev/null; then yum install -y ${names('fedora')} && yum clean all
elif command -v pacman >/dev/null; then pacman -Syu --noconfirm --needed ${names('fedora')}
elif command -v zypper >/dev/null; then zypper --non-interactive install ${names()}
else echo "no package manager is known in this image" >&2; exit 1; fi`;
}

function copyOf(owner: string) {
  return { source: '.', destination: '/', owner, mode: '', limitBytes: FILES_LIMIT_BYTES };
}

function rootFiles(there: ReadonlySet<string>): InlineFile[] {
  const directory = (name: string, mode = 0o755): InlineFile => ({ name, content: '', directory: true, mode });
  return [
    ...['dev', 'proc', 'sys', 'run', 'etc', 'code', '.sandbar', 'usr/local'].map((name) => directory(name)),
    directory('tmp', 0o1777),
    // What the agent is mounted over: the runtime cannot make it in a tree that is only to be read.
    { name: '.sandbar/agent', content: '', mode: 0o755 },
    // Keeps the runtime from putting a memory file system over an empty /tmp.
    { name: 'tmp/.sandbar', content: '' },
    { name: 'etc/hostname', content: 'e2b.local\n' },
    {
      name: 'etc/hosts',
      content: '127.0.0.1 localhost e2b.local\n::1 localhost ip6-localhost ip6-loopback\n',
    },
    { name: 'etc/resolv.conf', content: 'nameserver 8.8.8.8\n' },
    { name: '.e2b', content: '' },
    ...(there.has('/etc/profile') ? [] : [{ name: 'etc/profile', content: 'export LANG="${LANG:-C.UTF-8}"\n' }]),
  ];
}

function userFiles(there: ReadonlySet<string>): InlineFile[] {
  return [
    { name: 'home/user/.profile', content: PROFILE },
    { name: 'home/user/.bashrc', content: BASHRC },
  ].filter(({ name }) => !there.has(`/${name}`));
}
