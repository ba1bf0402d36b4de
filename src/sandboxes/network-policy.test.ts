import { expect, test } from 'vitest';
import { networkPolicyOf, secretNamesIn, withEgress } from './network-policy.ts';

test('addresses and names of a list go their own ways', () => {
  const network = {
    allowOut: ['8.8.8.8', '203.0.113.0/24', 'example.com', '*.example.org', '*'],
    denyOut: ['0.0.0.0/0'],
  };
  expect(networkPolicyOf({ network, allowInternetAccess: null }, {})).toMatchObject({
    allow: ['8.8.8.8', '203.0.113.0/24'],
    deny: ['0.0.0.0/0'],
    allowNames: ['example.com', '*.example.org', '*'],
  });
});

test('no internet access is everything denied', () => {
  expect(networkPolicyOf({ network: null, allowInternetAccess: false }, {})).toMatchObject({ deny: ['0.0.0.0/0'] });
  expect(networkPolicyOf({ network: null, allowInternetAccess: true }, {})).toMatchObject({ allow: [], deny: [] });
});

test('rules become headers by domain; a rule without any is none', () => {
  const rules = { 'api.test': [{ transform: { headers: { 'X-A': 'b' } } }], 'other.test': [{}], 'none.test': [] };
  expect(networkPolicyOf({ network: { rules }, allowInternetAccess: null }, {}).rules).toEqual({
    'api.test': { headers: { 'X-A': 'b' } },
  });
});

test('the egress proxy is taken apart', () => {
  const network = { egressProxy: { address: 'Proxy.Example.com:1080', username: 'u' } };
  expect(networkPolicyOf({ network, allowInternetAccess: null }, {}).egressProxy).toEqual({
    host: 'proxy.example.com',
    port: 1080,
    username: 'u',
    password: '',
  });
});

test('the secrets that rules name', () => {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text users write
  const headers = { A: 'Bearer ${e2b.secrets.One}', B: '${e2b.secrets.two}:${e2b.secrets.one}', C: 'plain' };
  expect(secretNamesIn({ rules: { 'api.test': [{ transform: { headers } }] } })).toEqual(['one', 'two']);
  expect(secretNamesIn(null)).toEqual([]);
});

test('a change replaces the whole way out and leaves the way in', () => {
  const before = { allowPublicTraffic: false, maskRequestHost: 'a', allowOut: ['8.8.8.8'], denyOut: ['0.0.0.0/0'] };
  expect(withEgress(before, { denyOut: ['1.1.1.1'] })).toEqual({
    allowPublicTraffic: false,
    maskRequestHost: 'a',
    denyOut: ['1.1.1.1'],
  });
  expect(withEgress(null, {})).toEqual({});
});
