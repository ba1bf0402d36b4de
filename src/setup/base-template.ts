import { createHash } from 'node:crypto';
import { chmod, chown, copyFile, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { type AptSource, readAptSources, sourceLine } from './apt-sources.ts';
import { ArtifactStore } from './artifact-store.ts';
import * as recipe from './base-recipe.ts';
import { runBound } from './bound-command.ts';
import type { Host } from './host.ts';
import { packFromNpm } from './npm-pack.ts';
import type { Progress } from './progress.ts';

/** Written beside `rootfs/` as template.json. */
export interface BaseTemplateInfo {
  key: string;
  createdAt: string;
  distribution: string;
  sizeBytes: number;
  /** Packages from the npm registry that were put in, `name@version`. */
  npmPackages: string[];
}

/** Bumped when the procedure of this file changes what comes out. */
const PROCEDURE = 2;

export async function setUpBaseTemplate(cacheDir: string, host: Host, progress: Progress): Promise<void> {
  const store = new ArtifactStore(cacheDir, 'base');
  await store.removeLeftovers();
  const key = baseTemplateKey(host);
  if (store.has(key)) {
    if (store.current() !== path.join(store.directory, key)) await store.select(key);
    return;
  }
  await progress.during(
    `Making the base template: ${host.prettyName}, python3, node ${recipe.npmPackages.nodeMajor}, git, build tools (about a minute)`,
    (say) => store.add(key, (directory) => makeBaseTemplate(directory, key, host, say)),
  );
}

export function baseTemplateKey(host: Host): string {
  const { packages, excludedPaths, includedPaths, npmPackages, files, removedPaths, worldWritable, defaultUser } =
    recipe;
  const contents = {
    packages,
    excludedPaths,
    includedPaths,
    npmPackages,
    files,
    removedPaths,
    worldWritable,
    defaultUser,
  };
  const { distribution, version, arch } = host;
  return createHash('sha256')
    .update(JSON.stringify({ PROCEDURE, contents, distribution, version, arch }))
    .digest('hex')
    .slice(0, 16);
}

async function makeBaseTemplate(
  directory: string,
  key: string,
  host: Host,
  say: (text: string) => void,
): Promise<void> {
  const rootfs = path.join(directory, 'rootfs');
  const downloads = path.join(directory, 'downloads');
  await mkdir(downloads);
  const sources = await readAptSources(host);
  // Both wait for the network most of the time. When one fails the other is still let end: it writes into our directory.
  const [system, node] = await Promise.allSettled([
    installSystem(rootfs, host, sources, say),
    downloadNode(downloads, host),
  ]);
  if (system.status === 'rejected') throw system.reason;
  if (node.status === 'rejected') throw node.reason;
  say('putting in node, npm and the user');
  await installNode(rootfs, node.value);
  await rm(downloads, { recursive: true });
  await adapt(rootfs);

  const { stdout } = await runCommand('du', ['-sb', rootfs], { timeoutMs: 120_000 });
  const info: BaseTemplateInfo = {
    key,
    createdAt: new Date().toISOString(),
    distribution: host.prettyName,
    sizeBytes: Number.parseInt(stdout, 10),
    npmPackages: [node.value.node.id, node.value.npm.id],
  };
  await writeFile(path.join(directory, 'template.json'), `${JSON.stringify(info, null, 2)}\n`);
}

/** Debian or Ubuntu with the packages of the recipe, from the host's own mirrors. */
async function installSystem(
  rootfs: string,
  host: Host,
  sources: AptSource[],
  say: (text: string) => void,
): Promise<void> {
  const args = [
    // What mmdebstrap mounts and starts lives in namespaces that end with it, however it ends.
    ...['--mount', '--pid', '--fork', '--kill-child', '--mount-proc', '--propagation', 'private', '--', 'mmdebstrap'],
    ...['--mode=root', '--format=directory', '--variant=minbase', `--include=${recipe.packages.join(',')}`],
    ...(await proxyOptions()),
    '--aptopt=Acquire::Languages "none"',
    // No fsync for every file: a half-made template is thrown away anyway.
    '--dpkgopt=force-unsafe-io',
    ...recipe.excludedPaths.map((each) => `--dpkgopt=path-exclude=${each}`),
    ...recipe.includedPaths.map((each) => `--dpkgopt=path-include=${each}`),
    ...[host.codename, rootfs],
    ...sources.map(sourceLine),
  ];
  try {
    await runBound('unshare', args, {
      timeoutMs: 900_000,
      env: { ...process.env, LC_ALL: 'C.UTF-8', DEBIAN_FRONTEND: 'noninteractive' },
      onLine: (line) => {
        const stage = /^I: (.*)$/.exec(line)?.[1];
        if (stage !== undefined) say(stage);
        const package_ = /^(?:Setting up|Unpacking) ([^ ]+)/.exec(line)?.[0];
        if (package_ !== undefined) say(package_);
      },
    });
  } catch (error) {
    const lines = messageOf(error).split('\n');
    const said = lines.find((line) => /^(E|Err):/.test(line.trim())) ?? lines.at(-1) ?? '';
    throw new SandbarError(
      'failed_precondition',
      `mmdebstrap could not make the base template: ${said.trim().slice(0, 300)}`,
      {
        cause: error,
      },
    );
  }
}

/** A proxy, and leniency about old mirrors, that the host's apt needs, mmdebstrap's apt needs too. Not kept in the template. */
async function proxyOptions(): Promise<string[]> {
  const { stdout } = await runCommand('apt-config', ['dump', '--no-empty', '--format', '%F "%v";%n']);
  return stdout
    .split('\n')
    .filter((line) => /^Acquire::(https?::Proxy|Check-Valid-Until)/i.test(line))
    .map((line) => `--aptopt=${line.replace(/;$/, '')}`);
}

interface NodeDownload {
  node: { id: string; directory: string };
  npm: { id: string; directory: string };
}

async function downloadNode(downloads: string, host: Host): Promise<NodeDownload> {
  const platform = host.arch === 'aarch64' ? 'linux-arm64' : 'linux-x64';
  const [node, npm] = await Promise.all([
    packFromNpm(`node-${platform}@${recipe.npmPackages.nodeMajor}`, path.join(downloads, 'node')),
    packFromNpm(recipe.npmPackages.npm, path.join(downloads, 'npm')),
  ]);
  return { node, npm };
}

async function installNode(rootfs: string, { node, npm }: NodeDownload): Promise<void> {
  const bin = path.join(rootfs, 'usr/local/bin');
  const modules = path.join(rootfs, 'usr/local/lib/node_modules');
  await mkdir(modules, { recursive: true });
  await copyFile(path.join(node.directory, 'bin/node'), path.join(bin, 'node'));
  await chmod(path.join(bin, 'node'), 0o755);
  await rename(npm.directory, path.join(modules, 'npm'));
  for (const part of ['docs', 'man']) await rm(path.join(modules, 'npm', part), { recursive: true, force: true });
  for (const name of ['npm', 'npx']) {
    await chmod(path.join(modules, `npm/bin/${name}-cli.js`), 0o755);
    await symlink(`../lib/node_modules/npm/bin/${name}-cli.js`, path.join(bin, name));
  }
}

/** Makes the plain system the place that a sandbox's user expects. */
async function adapt(rootfs: string): Promise<void> {
  const { name, uid, gid, home } = recipe.defaultUser;
  await runCommand('chroot', [rootfs, 'groupadd', '--gid', `${gid}`, name]);
  await runCommand('chroot', [
    ...[rootfs, 'useradd', '--uid', `${uid}`, '--gid', `${gid}`, '--create-home', '--home-dir', home],
    ...['--shell', '/bin/bash', name],
  ]);
  for (const each of recipe.removedPaths) await rm(path.join(rootfs, each), { force: true });
  for (const file of recipe.files) {
    const target = path.join(rootfs, file.path);
    await mkdir(path.dirname(target), { recursive: true });
    // The file may be a link (resolv.conf, on some systems): it is replaced, not followed out of the tree.
    await rm(target, { force: true });
    await writeFile(target, file.text);
    await chmod(target, file.mode);
    if (file.ofUser) await chown(target, uid, gid);
  }
  await removeMatches(path.join(rootfs, 'usr/lib'), /^python3/, 'EXTERNALLY-MANAGED');
  await makeLocalSitePackages(rootfs);
  for (const each of recipe.worldWritable) {
    await mkdir(path.join(rootfs, each), { recursive: true });
    await runCommand('chmod', ['-R', 'a+rwX', path.join(rootfs, each)]);
  }
  // The runtime mounts its own over these; what is in them is of the build.
  for (const each of ['dev', 'proc', 'sys', 'run', 'tmp']) await emptyDirectory(path.join(rootfs, each));
  await chmod(path.join(rootfs, 'tmp'), 0o1777);
  for (const each of ['var/log', 'var/cache/apt'])
    await runCommand('find', [path.join(rootfs, each), '-type', 'f', '-delete']);
}

/** pip puts packages in /usr/local only where this directory is there and writable; else into the home directory. */
async function makeLocalSitePackages(rootfs: string): Promise<void> {
  const versions = (await readdir(path.join(rootfs, 'usr/lib'))).filter((name) => /^python3\.\d+$/.test(name));
  for (const version of versions)
    await mkdir(path.join(rootfs, 'usr/local/lib', version, 'dist-packages'), { recursive: true });
}

async function removeMatches(parent: string, directories: RegExp, name: string): Promise<void> {
  for (const each of await readdir(parent))
    if (directories.test(each)) await rm(path.join(parent, each, name), { force: true });
}

async function emptyDirectory(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  for (const name of await readdir(directory)) await rm(path.join(directory, name), { recursive: true, force: true });
}

/** What template.json beside a base template's rootfs says. */
export async function readBaseTemplateInfo(directory: string): Promise<BaseTemplateInfo> {
  return JSON.parse(await readFile(path.join(directory, 'template.json'), 'utf8'));
}
