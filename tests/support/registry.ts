import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runCommand } from '../../src/core/command.ts';
import { loadConfig } from '../../src/core/config.ts';
import { locateArtifacts } from '../../src/setup/artifacts.ts';
import { freePort } from './free-port.ts';

export const REGISTRY_LOGIN = { username: 'tester', password: 'right-password' };
/** bcrypt of the password above. */
const PASSWORD_HASH = '$2b$12$8Yy/79DBcZjRLPJYg1CDm.FrAeEdQlqhCiz.VIPDhqDNKeL5cQ9gC';

/** A layer of an image: files to make, links (`-> target`), and what it takes away of the layers below. */
export interface TestLayer {
  files?: Record<string, string>;
  remove?: string[];
  /** Directories whose content below is hidden. */
  opaque?: string[];
  /** A directory on this machine whose content comes first. */
  from?: string;
}

export interface TestImageConfig {
  Env?: string[];
  User?: string;
  WorkingDir?: string;
  Entrypoint?: string[];
  Cmd?: string[];
}

/** Debian's docker-registry on a port of its own, with what tests push. */
export class TestRegistry {
  readonly directory = mkdtempSync(path.join(tmpdir(), 'sandbar-registry-'));
  #process: ChildProcess | undefined;
  #port = 0;

  /** With `login`, only REGISTRY_LOGIN may read and write. */
  static async start(options: { login?: boolean } = {}): Promise<TestRegistry> {
    const registry = new TestRegistry();
    registry.#port = await freePort();
    const htpasswd = path.join(registry.directory, 'htpasswd');
    await writeFile(htpasswd, `${REGISTRY_LOGIN.username}:${PASSWORD_HASH}\n`);
    const config = {
      version: 0.1,
      log: { level: 'error' },
      storage: { filesystem: { rootdirectory: path.join(registry.directory, 'data') } },
      http: { addr: `127.0.0.1:${registry.#port}` },
      ...(options.login && { auth: { htpasswd: { realm: 'test', path: htpasswd } } }),
    };
    const configFile = path.join(registry.directory, 'config.json');
    await writeFile(configFile, JSON.stringify(config));
    registry.#process = spawn('setpriv', ['--pdeathsig', 'KILL', '--', 'docker-registry', 'serve', configFile], {
      stdio: 'ignore',
    });
    for (let waited = 0; ; waited += 50) {
      const answer = await fetch(`http://${registry.host}/v2/`).catch(() => undefined);
      if (answer !== undefined) return registry;
      if (waited > 10_000) throw new Error('docker-registry does not start');
      await sleep(50);
    }
  }

  get host(): string {
    return `127.0.0.1:${this.#port}`;
  }

  /** Makes an image of the layers and pushes it as `name`. */
  async push(name: string, layers: TestLayer[], config: TestImageConfig = {}, login = false): Promise<void> {
    const layout = path.join(this.directory, 'layouts', name.replaceAll(/[/:]/g, '-'));
    await makeLayout(layout, layers, config);
    await runCommand('skopeo', [
      ...['--insecure-policy', 'copy', '--quiet', '--dest-tls-verify=false'],
      ...(login ? [`--dest-creds=${REGISTRY_LOGIN.username}:${REGISTRY_LOGIN.password}`] : []),
      ...[`oci:${layout}:image`, `docker://${this.host}/${name}`],
    ]);
  }

  async stop(): Promise<void> {
    const child = this.#process;
    if (child !== undefined && child.exitCode === null) {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Prints an archive of a few programs of the system it runs in, with the libraries they need. */
const PICK = `
cd / && programs="bash sh dash ls cat id env mkdir rm touch chmod chown ln stat head tail grep sed sleep sudo whoami cp mv find sort wc tr"
whole() { while read -r file; do directory=$(readlink -f "$(dirname "$file")"); echo "\${directory#/}/$(basename "$file")"; readlink -f "$file" | cut -c2-; done; }
modules=$(ls /usr/libexec/sudo/*.so* /usr/lib/sudo/*.so* /usr/lib/*/security/*.so 2>/dev/null)
{
  for each in $programs; do echo "/usr/bin/$each"; done | whole
  ldd $(for each in $programs; do echo "/usr/bin/$each"; done) $modules 2>/dev/null | grep -o '/[^ )]*' | grep -v ':$' | whole
  for each in $modules; do echo "$each"; done | whole
  ls -d bin sbin lib lib64 etc/passwd etc/group etc/shadow etc/nsswitch.conf etc/sudoers etc/pam.d etc/pam.d/* etc/security etc/security/* etc/environment etc/login.defs usr/sbin/unix_chkpwd 2>/dev/null
} | sort -u | tar --create --file=- --no-recursion --files-from=-
`;

/** A small Debian: a shell, the usual small programs and sudo, taken from the base template. */
export async function smallSystem(directory: string): Promise<void> {
  const { rootfs } = locateArtifacts(loadConfig(process.env)).baseTemplate;
  await mkdir(directory, { recursive: true });
  const script = 'set -o pipefail; chroot "$1" /bin/bash -c "$2" | tar -C "$3" --extract';
  await runCommand('bash', ['-c', script, '-', rootfs, PICK, directory]);
  for (const name of ['root', 'home', 'var', 'tmp']) await mkdir(path.join(directory, name), { recursive: true });
  // No `user` of ours: set-up must make it.
  const accounts = ['passwd', 'group', 'shadow'].map((file) => path.join(directory, 'etc', file));
  await runCommand('sed', ['-i', '/^user:/d', ...accounts]);
}

/** The same files are the same archive, whenever they were written: images share layers by what is in them. */
const SAME_BYTES = [
  '--sort=name',
  '--mtime=@0',
  '--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime,delete=mtime',
];

async function makeLayout(layout: string, layers: TestLayer[], config: TestImageConfig): Promise<void> {
  await mkdir(path.join(layout, 'blobs/sha256'), { recursive: true });
  const put = async (content: Buffer | string) => {
    const bytes = Buffer.from(content);
    const hash = createHash('sha256').update(bytes).digest('hex');
    await writeFile(path.join(layout, 'blobs/sha256', hash), bytes);
    return { digest: `sha256:${hash}`, size: bytes.length };
  };
  const diffIds: string[] = [];
  const described: object[] = [];
  for (const [at, layer] of layers.entries()) {
    const tree = path.join(layout, `layer${at}`);
    await writeTree(tree, layer);
    const tar = path.join(layout, `layer${at}.tar`);
    await runCommand('tar', [...SAME_BYTES, '--numeric-owner', '--xattrs', '-C', tree, '-cf', tar, '.'], {
      timeoutMs: 120_000,
    });
    diffIds.push(
      `sha256:${createHash('sha256')
        .update(await readFile(tar))
        .digest('hex')}`,
    );
    await runCommand('gzip', ['-1', '-n', '-f', tar], { timeoutMs: 120_000 });
    const blob = await put(await readFile(`${tar}.gz`));
    described.push({ mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', ...blob });
  }
  const architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';
  const image = await put(
    JSON.stringify({ architecture, os: 'linux', config, rootfs: { type: 'layers', diff_ids: diffIds } }),
  );
  const manifest = await put(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', ...image },
      layers: described,
    }),
  );
  const index = {
    schemaVersion: 2,
    manifests: [
      {
        mediaType: 'application/vnd.oci.image.manifest.v1+json',
        ...manifest,
        annotations: { 'org.opencontainers.image.ref.name': 'image' },
      },
    ],
  };
  await writeFile(path.join(layout, 'index.json'), JSON.stringify(index));
  await writeFile(path.join(layout, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
}

async function writeTree(tree: string, { files = {}, remove = [], opaque = [], from }: TestLayer): Promise<void> {
  await mkdir(tree, { recursive: true });
  if (from !== undefined) await runCommand('cp', ['-a', '-T', from, tree]);
  const put = async (name: string, content: string) => {
    const file = path.join(tree, name);
    await mkdir(path.dirname(file), { recursive: true });
    if (content.startsWith('-> ')) await runCommand('ln', ['-s', content.slice(3), file]);
    else await writeFile(file, content);
  };
  for (const [name, content] of Object.entries(files)) await put(name, content);
  for (const name of remove) await put(path.join(path.dirname(name), `.wh.${path.basename(name)}`), '');
  for (const name of opaque) await put(path.join(name, '.wh..wh..opq'), '');
}
