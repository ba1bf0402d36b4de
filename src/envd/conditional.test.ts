import { expect, test } from 'vitest';
import { asksForStoredBytes, checkConditions, rangeHolds, validatorsOf } from './conditional.ts';

const seconds = 1_700_000_000;
const file = validatorsOf(5, BigInt(seconds) * 1_000_000_000n + 7n);
const at = (offset: number) => new Date((seconds + offset) * 1000).toUTCString();

test.each([
  [{}, 'send'],
  [{ 'if-none-match': '*' }, 'not-modified'],
  [{ 'if-none-match': file.etag }, 'not-modified'],
  [{ 'if-none-match': `"x", W/${file.etag}` }, 'not-modified'],
  [{ 'if-none-match': '"x"', 'if-modified-since': at(10) }, 'send'],
  [{ 'if-modified-since': at(0) }, 'not-modified'],
  [{ 'if-modified-since': at(-1) }, 'send'],
  [{ 'if-modified-since': 'yesterday' }, 'send'],
  [{ 'if-unmodified-since': at(-1) }, 'precondition-failed'],
  [{ 'if-unmodified-since': at(0) }, 'send'],
  [{ 'if-match': '"x"' }, 'precondition-failed'],
  [{ 'if-match': file.etag }, 'send'],
])('%o', (headers, verdict) => {
  expect(checkConditions(headers, file)).toBe(verdict);
});

test('a range holds only for the file that If-Range means', () => {
  expect(rangeHolds({}, file)).toBe(true);
  expect(rangeHolds({ 'if-range': file.etag }, file)).toBe(true);
  expect(rangeHolds({ 'if-range': '"x"' }, file)).toBe(false);
  expect(rangeHolds({ 'if-range': at(0) }, file)).toBe(true);
  expect(rangeHolds({ 'if-range': at(1) }, file)).toBe(false);
});

test('ranges and conditions are noticed', () => {
  expect(asksForStoredBytes({ range: 'bytes=0-' })).toBe(true);
  expect(asksForStoredBytes({ accept: '*/*' })).toBe(false);
});
