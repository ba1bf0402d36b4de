import type { RuntimeName } from '../src/core/config.ts';
import { Findings } from './comparison.ts';
import { WHAT, WHERE } from './names.ts';
import { milliseconds, printTable, quantity, type Row, times } from './report.ts';

/** A promise in numbers, and what this run found. */
export interface Target {
  what: string;
  target: string;
  measured: string;
  met: boolean | undefined;
}

/** Where the two runtimes are promised different figures. */
const PROMISED = {
  container: { firstMs: 30, burstMs: 600, idleMb: 4, transferShare: 0.6, perSecond: 25 },
  gvisor: { firstMs: 120, burstMs: 3000, idleMb: 18, transferShare: 0.4, perSecond: 6 },
} as const;

export function targetsOf(rows: readonly Row[], runtimes: readonly RuntimeName[], mostSandboxes: number): Target[] {
  const findings = new Findings(rows);
  return runtimes.flatMap((runtime) => ofRuntime(findings, runtime, mostSandboxes));
}

export function printTargets(targets: readonly Target[]): void {
  const lines = targets.map(({ what, target, measured, met }) => [
    what,
    target,
    measured,
    met === undefined ? 'not measured' : met ? 'met' : 'missed',
  ]);
  printTable('Targets', ['', 'target', 'measured', ''], lines);
}

function ofRuntime(findings: Findings, runtime: RuntimeName, most: number): Target[] {
  const promised = PROMISED[runtime];
  const warm = WHERE.warm(runtime);
  const cold = WHERE.cold(runtime);
  const { docker, nginx } = WHERE;
  const create = findings.row(WHAT.create, warm)?.summary;
  const burst = findings.row(WHAT.burstAgain, warm)?.summary;
  const sustained = findings.row(WHAT.sustained, warm)?.figure;
  const ratio = (above: readonly [string, string], below: readonly [string, string]) =>
    findings.value(...above) / findings.value(...below);
  const isBelow = (value: number, limit: number) => (Number.isNaN(value) ? undefined : value < limit);
  const isAtMost = (value: number, limit: number) => (Number.isNaN(value) ? undefined : value <= limit);
  const isAtLeast = (value: number, limit: number) => (Number.isNaN(value) ? undefined : value >= limit);

  const below = (what: string, value: number, limit: number, unit: string): Target => ({
    what: `${runtime}: ${what}`,
    target: `< ${limit} ${unit}`,
    measured: quantity(value, unit),
    met: isBelow(value, limit),
  });
  const faster = (what: string, value: number, limit: number): Target => ({
    what: `${runtime}: ${what}`,
    target: `≥ ${limit}x faster`,
    measured: times(value),
    met: isAtLeast(value, limit),
  });
  const atMost = (what: string, value: number, limit: number): Target => ({
    what: `${runtime}: ${what}`,
    target: `≤ ${limit}x`,
    measured: times(value),
    met: isAtMost(value, limit),
  });
  const share = (what: string, value: number): Target => ({
    what: `${runtime}: ${what}`,
    target: `≥ ${promised.transferShare * 100} %`,
    measured: quantity(value * 100, '%'),
    met: isAtLeast(value, promised.transferShare),
  });
  const faultless = (what: string, tally: { samples: number; failures: number } | undefined): Target => ({
    what: `${runtime}: ${what}`,
    target: 'none',
    measured: tally === undefined ? '–' : `${tally.failures} of ${tally.samples + tally.failures}`,
    met: tally === undefined ? undefined : tally.failures === 0,
  });

  const firstCommand = [WHAT.firstCommand, warm] as const;
  const exec = [WHAT.exec, runtime] as const;
  return [
    below('warm create, p50', create?.medianMs ?? Number.NaN, 10, 'ms'),
    below('warm create, p99', create?.p99Ms ?? Number.NaN, 40, 'ms'),
    faster('warm create vs docker run', ratio([WHAT.create, docker], [WHAT.create, warm]), 30),
    below('create → first command, p50', findings.value(...firstCommand), promised.firstMs, 'ms'),
    faster('create → first command vs docker run', ratio([WHAT.firstCommand, docker], firstCommand), 5),
    below('burst, the pool having seen one, p50', burst?.medianMs ?? Number.NaN, promised.burstMs, 'ms'),
    faultless('burst, failures', burst),
    runtime === 'container'
      ? below('exec, p50', findings.value(...exec), 4, 'ms')
      : atMost('exec vs spawn inside', ratio(exec, [WHAT.spawn, runtime]), 1.5),
    {
      what: `${runtime}: exec vs docker exec`,
      target: 'faster',
      measured: `${milliseconds(findings.value(...exec))} vs ${findings.text(WHAT.exec, docker)}`,
      met: isBelow(ratio(exec, [WHAT.exec, docker]), 1),
    },
    atMost(
      `cold create vs ${WHERE.bare(runtime)} start`,
      ratio([WHAT.create, cold], [WHAT.start, WHERE.bare(runtime)]),
      1.4,
    ),
    below(`idle memory a sandbox at ${most}`, findings.value(WHAT.idle(most), runtime), promised.idleMb, 'MB'),
    below(`service's memory at ${most}`, findings.value(WHAT.service(most), runtime), 200, 'MB'),
    share('large file up vs nginx', ratio([WHAT.upload, runtime], [WHAT.upload, nginx])),
    share('large file down vs nginx', ratio([WHAT.download, runtime], [WHAT.download, nginx])),
    {
      what: `${runtime}: sustained`,
      target: `≥ ${promised.perSecond} /s`,
      measured: quantity(sustained?.value ?? Number.NaN, '/s'),
      met: isAtLeast(sustained?.value ?? Number.NaN, promised.perSecond),
    },
    faultless('sustained, failures', sustained),
  ];
}
