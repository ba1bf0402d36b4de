import { expect, test } from 'vitest';
import { CompiledPolicy, matchesName, type NetworkPolicy, OPEN_POLICY } from './policy.ts';

const policy = (change: Partial<NetworkPolicy>) => new CompiledPolicy({ ...OPEN_POLICY, ...change });

test('allow wins over deny, deny over the default', () => {
  const some = policy({ allow: ['203.0.113.7'], deny: ['203.0.113.0/24'] });
  expect(some.permitsAddress('203.0.113.7')).toBe(true);
  expect(some.permitsAddress('203.0.113.8')).toBe(false);
  expect(some.permitsAddress('198.51.100.1')).toBe(true);
});

test.each([
  ['example.com', 'example.com', true],
  ['example.com', 'www.example.com', false],
  ['*.example.com', 'www.example.com', true],
  ['*.example.com', 'a.b.example.com', true],
  ['*.example.com', 'example.com', false],
  ['*.example.com', '.example.com', false],
  ['*.example.com', 'badexample.com', false],
  ['*', 'anything.test', true],
])('%s and %s: %s', (pattern, name, matches) => {
  expect(matchesName(pattern, name)).toBe(matches);
});

test('the way out follows from the rules', () => {
  expect(policy({}).passage).toBe('direct');
  expect(policy({}).isOpen).toBe(true);
  expect(policy({ allow: ['8.8.8.8'] }).isOpen).toBe(true);
  expect(policy({ deny: ['8.8.8.8'] }).isOpen).toBe(false);
  expect(policy({ deny: ['0.0.0.0/0'], names: ['example.com'] }).passage).toBe('named');
  expect(policy({ rules: { 'example.com': { a: 'b' } } }).passage).toBe('proxied');
  const egressProxy = { host: 'proxy.example.com', port: 1080, username: '', password: '' };
  expect(policy({ egressProxy }).passage).toBe('proxied');
});

test('the exact rule beats the longest wildcard, and rules are not merged', () => {
  const ruled = policy({
    rules: { '*.example.com': { a: '1' }, '*.api.example.com': { b: '2' }, 'x.api.example.com': { c: '3' } },
  });
  expect(ruled.headersFor('www.example.com')).toEqual({ a: '1' });
  expect(ruled.headersFor('y.api.example.com')).toEqual({ b: '2' });
  expect(ruled.headersFor('x.api.example.com')).toEqual({ c: '3' });
  expect(ruled.headersFor('example.com')).toBeUndefined();
});
