import { expect, test } from 'vitest';
import { keepaliveIntervalMs, Silence } from './keepalive.ts';

test.each([
  ['50', 50_000],
  [null, 90_000],
  ['', 90_000],
  ['0', 90_000],
  ['-3', 90_000],
  ['soon', 90_000],
  ['999999999', 86_400_000],
])('interval of %j', (header, expected) => {
  expect(keepaliveIntervalMs(header)).toBe(expected);
});

test('silence is counted from the last word', async () => {
  const silence = new Silence(50);
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(silence.leftMs).toBe(0);
  silence.broken();
  expect(silence.leftMs).toBeGreaterThan(30);
});
