import { expect, test } from 'vitest';
import { CompiledPolicy, type NetworkPolicy, OPEN_POLICY } from '../policy.ts';
import { decide } from './decision.ts';

const policy = (change: Partial<NetworkPolicy>) => new CompiledPolicy({ ...OPEN_POLICY, ...change });
const to = (address: string) => ({ address, port: 443 });
const tls = (name?: string) => ({ kind: 'tls' as const, name });
const everything = ['0.0.0.0/0'];

test('an allowed name is dialled by its name, whatever address was dialled', () => {
  const named = policy({ deny: everything, names: ['example.com'] });
  expect(decide(named, to('203.0.113.99'), tls('example.com'))).toMatchObject({
    verdict: 'pass',
    name: 'example.com',
    byName: true,
  });
  expect(decide(named, to('203.0.113.99'), tls('evil.test'))).toEqual({ verdict: 'refuse' });
  expect(decide(named, to('203.0.113.99'), tls())).toEqual({ verdict: 'refuse' });
  expect(decide(named, to('203.0.113.99'), { kind: 'silent', name: undefined })).toEqual({ verdict: 'refuse' });
});

test('an allowed address is dialled as it is', () => {
  const addressed = policy({ deny: everything, allow: ['203.0.113.0/24'], names: ['example.com'] });
  expect(decide(addressed, to('203.0.113.7'), tls('other.test'))).toMatchObject({ verdict: 'pass', name: undefined });
});

test('a header rule does not allow, but takes what is allowed to its name', () => {
  const rules = { 'api.test': { authorization: 'x' } };
  expect(decide(policy({ rules }), to('203.0.113.7'), tls('api.test'))).toEqual({
    verdict: 'pass',
    name: 'api.test',
    byName: false,
    headers: { authorization: 'x' },
    via: undefined,
  });
  expect(decide(policy({ rules, deny: everything }), to('203.0.113.7'), tls('api.test'))).toEqual({
    verdict: 'refuse',
  });
});
