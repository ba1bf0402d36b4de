import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import { SandbarError } from '../core/errors.ts';
import { aptUpdate, runApt } from './apt-sources.ts';
import { cargoMinor, SINGLE_CRATES_SINCE } from './crates.ts';
import { findProgram } from './find-program.ts';
import { type Host, isSupported } from './host.ts';
import type { Progress } from './progress.ts';

export interface PackageNeed {
  package: string;
  /** A program on PATH, or a file, whose presence shows that the need is met where the packages have other names. */
  evidence: string;
  /**
   * `old-cargo`: where cargo is Debian 12's. `test-debian`: for the tests, and only where the package is one of Debian's own (Ubuntu's Chromium is
   * a snap).
   */
  when: (typeof OCCASIONS)[number];
  reason: string;
}

const OCCASIONS = ['always', 'old-cargo', 'test', 'test-debian'] as const;
const LEAST_CARGO_MINOR = 63;
const LIST = path.join(import.meta.dirname, '../../scripts/packages.txt');

/** Installs the packages that are missing, and only those. `forTests` adds what the test suites need. */
export async function setUpPackages(host: Host, progress: Progress, forTests: boolean): Promise<void> {
  const occasions: PackageNeed['when'][] = ['always'];
  if (host.distribution === 'debian' && host.version === '12' && !(await hasCargoSince(SINGLE_CRATES_SINCE)))
    occasions.push('old-cargo');
  if (forTests) occasions.push('test');
  if (forTests && host.distribution === 'debian') occasions.push('test-debian');
  const needs = readPackageNeeds().filter(({ when }) => occasions.includes(when));
  // Elsewhere the packages have other names: the programs must be there.
  const missing = isSupported(host)
    ? await missingPackages(needs)
    : needs.filter((need) => !hasEvidence(need.evidence));
  if (missing.length === 0) return;
  const names = missing.map((need) => need.package);
  if (!isSupported(host))
    throw new SandbarError(
      'failed_precondition',
      `${host.prettyName} is not handled by set-up; install: ${names.join(' ')}`,
    );

  progress.announce('Packages that are missing on this machine:');
  for (const need of missing) progress.note(`${need.package.padEnd(16)} ${need.reason}`);
  await progress.during(`Installing with apt-get: ${names.join(' ')}`, async (say) => {
    say('reading the package lists');
    const unreachable = await aptUpdate();
    const args = ['install', '--yes', '--no-install-recommends', '-o', 'Dpkg::Options::=--force-confold', ...names];
    try {
      await runApt(args, (line) => {
        const words = /^(?:Get:\d+|Unpacking|Setting up) [^(]*/.exec(line)?.[0];
        if (words !== undefined) say(words.trim());
      });
    } catch (error) {
      if (unreachable === undefined) throw error;
      throw new SandbarError('failed_precondition', `apt-get could not reach its mirror: ${unreachable}`, {
        cause: error,
      });
    }
  });
}

async function missingPackages(needs: readonly PackageNeed[]): Promise<PackageNeed[]> {
  const installed = await installedPackages(needs.map((need) => need.package));
  const missing: PackageNeed[] = [];
  for (const need of needs) {
    if (installed.has(need.package)) continue;
    // A cargo of rustup's serves as well as the distribution's.
    if (need.package === 'cargo' && (await hasCargoSince(LEAST_CARGO_MINOR))) continue;
    missing.push(need);
  }
  return missing;
}

async function installedPackages(names: readonly string[]): Promise<Set<string>> {
  // Status 1: some of them are not known to dpkg.
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query's own placeholders
  const { stdout } = await runCommand('dpkg-query', ['-W', '-f', '${Package} ${db:Status-Status}\\n', ...names], {
    okStatuses: [0, 1],
  });
  const lines = stdout.split('\n').map((line) => line.split(' '));
  return new Set(lines.filter(([, status]) => status === 'installed').map(([name]) => name ?? ''));
}

async function hasCargoSince(minor: number): Promise<boolean> {
  const cargo = findProgram('cargo');
  return cargo !== undefined && (await cargoMinor(cargo)) >= minor;
}

function hasEvidence(evidence: string): boolean {
  return evidence.startsWith('/') ? existsSync(evidence) : findProgram(evidence) !== undefined;
}

export function readPackageNeeds(text = readFileSync(LIST, 'utf8')): PackageNeed[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '' && !line.startsWith('#'));
  return lines.map((line) => {
    const [name = '', evidence = '', occasion = '', reason = ''] = line.split('|').map((field) => field.trim());
    const when = OCCASIONS.find((known) => known === occasion);
    if (!name || !evidence || !reason || when === undefined)
      throw new SandbarError('internal', `scripts/packages.txt: cannot read '${line}'`);
    return { package: name, evidence, when, reason };
  });
}
