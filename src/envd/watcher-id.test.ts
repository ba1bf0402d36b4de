import { expect, test } from 'vitest';
import { watcherId, watcherNumber } from './watcher-id.ts';

test.each([1, 35, 36, 1_000_000])('watcher %i is found again by its name', (number) => {
  const id = watcherId('isandbox', number);
  expect(id).toMatch(/^w[a-z0-9]{20}$/);
  expect(watcherNumber('isandbox', id)).toBe(number);
});

test.each(['', 'w', 'wrong', `w${'0'.repeat(20)}`, watcherId('another', 1)])(
  '%j is no watcher of the sandbox',
  (id) => {
    expect(watcherNumber('isandbox', id)).toBeUndefined();
  },
);
