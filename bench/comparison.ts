import { WHAT, WHERE } from './names.ts';
import { milliseconds, printTable, quantity, type Row, times } from './report.ts';

/** Looks figures up in the rows of a run. */
export class Findings {
  readonly #rows: readonly Row[];

  constructor(rows: readonly Row[]) {
    this.#rows = rows;
  }

  row(what: string, where: string): Row | undefined {
    return this.#rows.find((row) => row.what === what && row.where === where && (row.summary ?? row.figure));
  }

  /** The median time or the figure of a row; NaN where it was not measured. */
  value(what: string, where: string): number {
    const row = this.row(what, where);
    return row?.summary?.medianMs ?? row?.figure?.value ?? Number.NaN;
  }

  text(what: string, where: string): string {
    const row = this.row(what, where);
    if (row?.summary !== undefined) return milliseconds(row.summary.medianMs);
    return row?.figure === undefined ? '–' : quantity(row.figure.value, row.figure.unit);
  }
}

interface Pair {
  name: string;
  ours: readonly [what: string, where: string];
  peer: readonly [what: string, where: string];
  /** Rates are better when larger, times when smaller. */
  isRate?: true;
}

/** What was measured of ours and of a peer, side by side: how many times as fast ours is. */
export function printSideBySide(rows: readonly Row[], runtimes: readonly string[]): void {
  const findings = new Findings(rows);
  const lines = runtimes.flatMap(pairsOf).flatMap(({ name, ours, peer, isRate }) => {
    if (findings.row(...ours) === undefined || findings.row(...peer) === undefined) return [];
    const ratio = findings.value(...ours) / findings.value(...peer);
    return [[name, findings.text(...ours), findings.text(...peer), times(isRate ? ratio : 1 / ratio)]];
  });
  if (lines.length > 0) printTable('Side by side', ['', 'ours', 'peer', 'as fast'], lines);
}

function pairsOf(runtime: string): Pair[] {
  const warm = WHERE.warm(runtime);
  const cold = WHERE.cold(runtime);
  const bare = WHERE.bare(runtime);
  const { docker, nginx } = WHERE;
  const same = (name: string, what: string, peer: string, isRate?: true): Pair => ({
    name: `${runtime}: ${name}`,
    ours: [what, runtime],
    peer: [what, peer],
    ...(isRate && { isRate }),
  });
  return [
    { name: `${runtime}: warm create vs docker run`, ours: [WHAT.create, warm], peer: [WHAT.create, docker] },
    { name: `${runtime}: cold create vs docker run`, ours: [WHAT.create, cold], peer: [WHAT.create, docker] },
    { name: `${runtime}: cold create vs ${bare}`, ours: [WHAT.create, cold], peer: [WHAT.start, bare] },
    {
      name: `${runtime}: first command vs docker run`,
      ours: [WHAT.firstCommand, warm],
      peer: [WHAT.firstCommand, docker],
    },
    { name: `${runtime}: exec vs spawn inside`, ours: [WHAT.exec, runtime], peer: [WHAT.spawn, runtime] },
    same(`exec vs ${bare} exec`, WHAT.exec, bare),
    same('exec vs docker exec', WHAT.exec, docker),
    same('write 1 KB vs docker cp', WHAT.writeSmall, docker),
    same('read 1 KB vs docker cp', WHAT.readSmall, docker),
    same('output vs docker exec', WHAT.output, docker, true),
    same('large file up vs docker cp', WHAT.upload, docker, true),
    same('large file down vs docker cp', WHAT.download, docker, true),
    same('large file up vs nginx', WHAT.upload, nginx, true),
    same('large file down vs nginx', WHAT.download, nginx, true),
    same('build of every step vs docker build', WHAT.buildAll, docker),
    same('build of nothing new vs docker build', WHAT.buildNothing, docker),
    same('build of the last step vs docker build', WHAT.buildLast, docker),
    { name: `${runtime}: gateway vs direct`, ours: [WHAT.gateway, runtime], peer: [WHAT.direct, runtime] },
    { name: `${runtime}: gateway vs nginx`, ours: [WHAT.gateway, runtime], peer: [WHAT.proxied, runtime] },
  ];
}
