import { expect, it } from 'vitest';
import { Lines } from './lines.ts';

it('cuts output into lines', () => {
  const lines: string[] = [];
  const splitter = new Lines((line) => lines.push(line));
  const text = Buffer.from('one\r\ntwo ✓\n10%\r50%\r100%\n\nlast');
  for (let at = 0; at < text.length; at += 3) splitter.push(text.subarray(at, at + 3));
  splitter.end();
  expect(lines).toEqual(['one', 'two ✓', '100%', '', 'last']);
});

it('cuts lines that do not end', () => {
  const lines: string[] = [];
  const splitter = new Lines((line) => lines.push(line));
  splitter.push(Buffer.from('x'.repeat(10_000)));
  splitter.end();
  expect(lines.map((line) => line.length)).toEqual([4096, 4096, 1808]);
});
