import { expect, test } from 'vitest';
import { parseRange } from './range.ts';

test.each([
  [undefined, 'all'],
  ['bytes=0-4', { start: 0, end: 5 }],
  ['bytes=5-', { start: 5, end: 10 }],
  ['bytes=-3', { start: 7, end: 10 }],
  ['bytes=-30', { start: 0, end: 10 }],
  ['bytes=8-100', { start: 8, end: 10 }],
  ['bytes=10-', 'unsatisfiable'],
  ['bytes=-0', 'unsatisfiable'],
  ['bytes=5-2', 'all'],
  ['bytes=-', 'all'],
  ['bytes=0-1,4-5', 'all'],
  ['lines=1-2', 'all'],
])('%s of ten bytes', (header, expected) => {
  expect(parseRange(header, 10)).toEqual(expected);
});

test('no range of an empty file can be met', () => {
  expect(parseRange('bytes=0-', 0)).toBe('unsatisfiable');
});
