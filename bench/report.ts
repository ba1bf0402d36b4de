import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import path from 'node:path';
import type { Figure, Summary } from './statistics.ts';

/** One line of a table: what was measured, where, and the figures; without figures it says in its note why there are none. */
export interface Row {
  what: string;
  where: string;
  summary?: Summary;
  figure?: Figure;
  note?: string;
}

/** The machine and the versions, without which a figure says nothing. */
export function environment(versions: Record<string, string>): Record<string, string> {
  return {
    cpu: `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}`,
    memory: `${Math.round(totalmem() / 2 ** 30)} GiB`,
    kernel: release(),
    system: /PRETTY_NAME="(.*)"/.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'Linux',
    node: process.version,
    ...versions,
  };
}

export function printRows(title: string, rows: readonly Row[]): void {
  printTable(
    title,
    ['', 'where', 'median', 'p95', 'p99', 'n', 'failed', 'success', ''],
    rows.map(({ what, where, summary, figure, note }) => {
      const tally = summary ?? figure;
      const remarks = [note, tally?.firstFailure?.slice(0, 200)].filter((text) => text !== undefined);
      return [
        what,
        where,
        summary ? milliseconds(summary.medianMs) : figure ? quantity(figure.value, figure.unit) : '–',
        summary ? milliseconds(summary.p95Ms) : '',
        summary ? milliseconds(summary.p99Ms) : '',
        tally ? String(tally.samples) : '0',
        tally ? String(tally.failures) : '0',
        tally ? successRate(tally) : '',
        remarks.join('; ').replace(/\s+/g, ' '),
      ];
    }),
  );
}

export function printTable(title: string, head: readonly string[], lines: readonly string[][]): void {
  const widths = head.map((cell, column) => Math.max(cell.length, ...lines.map((line) => (line[column] ?? '').length)));
  const render = (line: readonly string[]) =>
    line
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  console.log(`\n${title}\n${render(head)}\n${widths.map((width) => '-'.repeat(width)).join('  ')}`);
  for (const line of lines) console.log(render(line));
}

export function writeResults(directory: string, results: object): string {
  mkdirSync(directory, { recursive: true });
  const file = path.join(directory, `${new Date().toISOString().replace(/[:.]/g, '-')}.json`);
  writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
  return file;
}

export function milliseconds(value: number): string {
  return quantity(value, 'ms');
}

export function quantity(value: number, unit: string): string {
  if (Number.isNaN(value)) return '–';
  const digits = Number.isInteger(value) ? 0 : value < 10 ? 2 : value < 1000 ? 1 : 0;
  return `${value.toFixed(digits)} ${unit}`;
}

export function times(ratio: number): string {
  return Number.isNaN(ratio) ? '–' : `${ratio.toFixed(2)}x`;
}

function successRate({ samples, failures }: { samples: number; failures: number }): string {
  return samples + failures === 0 ? '' : `${((100 * samples) / (samples + failures)).toFixed(1)} %`;
}
