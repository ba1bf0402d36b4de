import { existsSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import { SandbarError } from '../core/errors.ts';
import { type AptSource, aptUpdate, readAptSources, runApt } from './apt-sources.ts';
import type { Host } from './host.ts';

/**
 * Packages of the distribution, its backports included, fetched and unpacked into a directory of ours: the host's package lists,
 * sources and installed packages stay as they are.
 */
export class PrivateApt {
  readonly #scratch: string;
  readonly #options: string[];

  private constructor(scratch: string, options: string[]) {
    this.#scratch = scratch;
    this.#options = options;
  }

  /** Everything it keeps is in `scratch`, which the caller removes. */
  static async open(host: Host, scratch: string): Promise<PrivateApt> {
    const sources = withBackports(await readAptSources(host), host);
    await mkdir(path.join(scratch, 'lists/partial'), { recursive: true });
    await mkdir(path.join(scratch, 'cache/archives/partial'), { recursive: true });
    const list = path.join(scratch, 'sources.list');
    const keyring = `/usr/share/keyrings/${host.distribution}-archive-keyring.gpg`;
    const signedBy = existsSync(keyring) ? `[signed-by=${keyring}] ` : '';
    await writeFile(
      list,
      sources.map(({ uri, suite, components }) => `deb ${signedBy}${uri} ${suite} ${components.join(' ')}\n`).join(''),
    );
    const settings = {
      'Dir::Etc::SourceList': list,
      'Dir::Etc::SourceParts': '/dev/null',
      'Dir::State::Lists': path.join(scratch, 'lists'),
      'Dir::Cache': path.join(scratch, 'cache'),
      // The directory is root's: the user that apt would download as cannot write in it.
      'APT::Sandbox::User': 'root',
      'Acquire::Languages': 'none',
    };
    const apt = new PrivateApt(
      scratch,
      Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]),
    );
    await aptUpdate(apt.#options);
    return apt;
  }

  /** Names of the packages that match. */
  async search(pattern: RegExp): Promise<string[]> {
    const { stdout } = await runCommand('apt-cache', [...this.#options, 'pkgnames']);
    return stdout.split('\n').filter((name) => pattern.test(name));
  }

  /** Newest version there is, backports included; undefined when there is no such package. */
  async newestVersion(name: string): Promise<string | undefined> {
    const { stdout } = await runCommand('apt-cache', [...this.#options, 'madison', name]);
    return stdout.split('\n')[0]?.split('|')[1]?.trim() || undefined;
  }

  /** Downloads packages (`name` or `name=version`) and unpacks them into one tree; runs nothing of them. */
  async unpack(packages: readonly string[]): Promise<string> {
    const downloads = path.join(this.#scratch, 'downloads');
    const tree = path.join(this.#scratch, 'tree');
    await mkdir(downloads, { recursive: true });
    await mkdir(tree, { recursive: true });
    await runApt([...this.#options, 'download', ...packages], undefined, downloads);
    const archives = (await readdir(downloads)).filter((name) => name.endsWith('.deb'));
    if (archives.length === 0)
      throw new SandbarError('internal', `apt-get downloaded nothing for ${packages.join(' ')}`);
    for (const archive of archives) await runCommand('dpkg-deb', ['-x', path.join(downloads, archive), tree]);
    return tree;
  }
}

/** Debian keeps newer packages in a suite of their own, on the same mirror; Ubuntu's is not needed. */
export function withBackports(
  sources: readonly AptSource[],
  host: Pick<Host, 'distribution' | 'codename'>,
): AptSource[] {
  const main = sources.find(({ suite }) => suite === host.codename);
  if (host.distribution !== 'debian' || main === undefined) return [...sources];
  return [...sources, { ...main, suite: `${host.codename}-backports` }];
}
