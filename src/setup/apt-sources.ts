import { type CommandResult, runCommand } from '../core/command.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import type { Host } from './host.ts';

/** One line of a sources.list: where a release of the distribution comes from. */
export interface AptSource {
  uri: string;
  suite: string;
  components: string[];
}

/** Parts of the archive that set-up installs from; the others hold nothing we need. */
const COMPONENTS: Record<string, readonly string[]> = { debian: ['main'], ubuntu: ['main', 'universe'] };

/**
 * The distribution's own archive as this machine is set up to reach it: its mirrors for the release, the updates and the security
 * updates. Third-party sources are left out.
 */
export async function readAptSources(host: Host): Promise<AptSource[]> {
  const format = '$(SITE)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(CREATED_BY)';
  const list = async () => (await runCommand('apt-get', ['indextargets', '--format', format])).stdout;
  let sources = parseIndexTargets(await list(), host);
  if (sources.length === 0) {
    // The origin of a source is known only once its release file is here.
    await aptUpdate();
    sources = parseIndexTargets(await list(), host);
  }
  if (sources.length === 0)
    throw new SandbarError(
      'failed_precondition',
      `apt has no source for ${host.prettyName} (${host.codename}): put the distribution's mirror back in /etc/apt`,
    );
  return sources;
}

/**
 * Refreshes the package lists. A source that cannot be reached is no error (it may be one we do not need); what apt said of it is
 * returned, for the message in case the installation then fails.
 */
export async function aptUpdate(options: readonly string[] = []): Promise<string | undefined> {
  const { stdout, stderr } = await runApt([...options, 'update']);
  return [...stderr.split('\n'), ...stdout.split('\n')].find((line) => /^(E|W|Err):?\d*[ :]/.test(line));
}

export async function runApt(
  args: readonly string[],
  onLine?: (line: string) => void,
  cwd?: string,
): Promise<CommandResult> {
  try {
    return await runCommand('apt-get', ['-o', 'DPkg::Lock::Timeout=300', ...args], {
      timeoutMs: 900_000,
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' },
      ...(onLine !== undefined && { onLine }),
      ...(cwd !== undefined && { cwd }),
    });
  } catch (error) {
    const lines = messageOf(error).split('\n');
    const line = lines.find((each) => /^(E|Err):/.test(each.trim())) ?? lines[0] ?? '';
    throw new SandbarError('failed_precondition', `apt-get failed: ${line.trim().slice(0, 300)}`, { cause: error });
  }
}

export function parseIndexTargets(text: string, host: Pick<Host, 'distribution' | 'codename'>): AptSource[] {
  const suites = ['', '-updates', '-security'].map((suffix) => `${host.codename}${suffix}`);
  const components = COMPONENTS[host.distribution] ?? ['main'];
  const found = new Map<string, AptSource>();
  for (const line of text.split('\n')) {
    const [uri = '', suite = '', component = '', origin = '', kind = ''] = line.split('|');
    if (kind !== 'Packages' || origin.toLowerCase() !== host.distribution) continue;
    if (!suites.includes(suite) || !components.includes(component)) continue;
    const key = `${uri} ${suite}`;
    const source = found.get(key) ?? { uri, suite, components: [] };
    if (!source.components.includes(component)) source.components.push(component);
    found.set(key, source);
  }
  return [...found.values()].sort((a, b) => suites.indexOf(a.suite) - suites.indexOf(b.suite));
}

/** `deb <uri> <suite> <components>`. */
export function sourceLine(source: AptSource): string {
  return `deb ${source.uri} ${source.suite} ${source.components.join(' ')}`;
}
