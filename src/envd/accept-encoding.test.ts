import { expect, test } from 'vitest';
import { acceptsIdentity, chooseCoding } from './accept-encoding.ts';

test.each([
  [undefined, 'identity'],
  ['', 'identity'],
  ['gzip', 'gzip'],
  ['gzip, deflate', 'gzip'],
  ['GZIP', 'gzip'],
  ['br', 'identity'],
  ['gzip;q=0', 'identity'],
  ['gzip;q=0.5, identity;q=0.8', 'identity'],
  ['gzip;q=0.8, identity;q=0.5', 'gzip'],
  ['gzip, identity', 'gzip'],
  ['*', 'identity'],
  ['identity;q=0', undefined],
  ['identity;q=0, gzip', 'gzip'],
  ['identity;q=0, *', 'gzip'],
  ['*;q=0', undefined],
  ['br, *;q=0', undefined],
  ['gzip, *;q=0', 'gzip'],
  ['gzip;q=banana', 'identity'],
])('%s chooses %s', (header, coding) => {
  expect(chooseCoding(header)).toBe(coding);
});

test('identity is refused only where it is said', () => {
  expect(acceptsIdentity('gzip')).toBe(true);
  expect(acceptsIdentity('identity;q=0, gzip')).toBe(false);
  expect(acceptsIdentity('gzip, *;q=0')).toBe(false);
});
