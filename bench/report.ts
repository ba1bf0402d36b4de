import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import path from 'node:path';
import type { Summary } from './statistics.ts';

/** One line of a table: what was measured, where, and the figures. */
export interface Row {
  what: string;
  where: string;
  summary?: Summary;
  /** A figure that is not a timing. */
  value?: string;
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

export function printTable(title: string, rows: readonly Row[]): void {
  const head = ['', 'where', 'median ms', 'p95', 'p99', 'n', 'failed', ''];
  const lines = rows.map((row) => [
    row.what,
    row.where,
    row.summary ? milliseconds(row.summary.medianMs) : (row.value ?? '–'),
    row.summary ? milliseconds(row.summary.p95Ms) : '',
    row.summary ? milliseconds(row.summary.p99Ms) : '',
    row.summary ? String(row.summary.samples) : '',
    row.summary ? String(row.summary.failures) : '',
    row.note ?? '',
  ]);
  const widths = head.map((cell, column) => Math.max(cell.length, ...lines.map((line) => (line[column] ?? '').length)));
  const render = (line: string[]) =>
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

function milliseconds(value: number): string {
  return Number.isNaN(value) ? '–' : value.toFixed(value < 10 ? 2 : 1);
}
