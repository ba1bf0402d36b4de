import { expect, it } from 'vitest';
import type { NetworkConfig } from '../sandboxes/network-config.ts';
import { ALL_TRAFFIC, checkNetwork } from './network-validation.ts';

const header = (headers: Record<string, string>) => [{ transform: { headers } }];
const many = <T>(count: number, make: (n: number) => [string, T]) =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => make(n)));

const PLACEHOLDERS = { secret: `Bearer \${e2b.secrets.key}`, host: `localhost:\${PORT}` };

it.each<NetworkConfig>([
  {},
  { allowPublicTraffic: false },
  { allowOut: ['1.1.1.1', '8.8.8.0/24', '2606:4700::/32', '2606:4700::1111'] },
  { denyOut: [ALL_TRAFFIC, '::/0', '9.9.9.9'] },
  { allowOut: ['example.com', '*.example.com', '*', '_dmarc.example.com'], denyOut: [ALL_TRAFFIC] },
  { egressProxy: null },
  { egressProxy: { address: 'proxy.example.com:1080', username: 'u', password: 'p' } },
  { egressProxy: { address: '[2606:4700::1111]:1080' } },
  { rules: { 'api.example.com': header({ Authorization: PLACEHOLDERS.secret }), '*.example.com': [] } },
  { maskRequestHost: PLACEHOLDERS.host },
  { maskRequestHost: 'example.com' },
  { httpsPorts: [443, 8443] },
])('accepts %j', (network) => {
  expect(checkNetwork(network, false)).toEqual(network);
});

it.each<[NetworkConfig, RegExp]>([
  [
    { allowOut: ['example.com'] },
    /^When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out/,
  ],
  [{ allowOut: ['*'], denyOut: ['1.1.1.1'] }, /^When specifying allowed domains/],
  [{ allowOut: ['300.1.1.1'] }, /^invalid allowed entry 300.1.1.1/],
  [{ allowOut: ['1.1.1.1/33'] }, /^invalid allowed entry/],
  [{ allowOut: ['0.0.0.0'] }, /^invalid allowed entry/],
  [{ allowOut: [''] }, /^invalid allowed entry/],
  [{ allowOut: ['a b.com'], denyOut: [ALL_TRAFFIC] }, /^invalid allowed entry/],
  [{ allowOut: ['*.*.com'], denyOut: [ALL_TRAFFIC] }, /^invalid allowed entry/],
  [{ allowOut: ['https://example.com'], denyOut: [ALL_TRAFFIC] }, /^invalid allowed entry/],
  [{ denyOut: ['example.com'] }, /^invalid denied CIDR example.com$/],
  [{ denyOut: ['0.0.0.0'] }, /^invalid denied CIDR 0.0.0.0$/],
  [{ denyOut: ['0.0.0.0/8'] }, /^invalid denied CIDR/],
  [{ denyOut: ['::'] }, /^invalid denied CIDR/],
  [{ denyOut: ['1.1.1.1/'] }, /^invalid denied CIDR/],
  [{ denyOut: ['1.1.1.1/8/8'] }, /^invalid denied CIDR/],
  [{ denyOut: ['fe80::1%eth0'] }, /^invalid denied CIDR/],
  [{ egressProxy: { address: 'proxy.example.com' } }, /^Invalid egress proxy config: /],
  [{ egressProxy: { address: 'proxy.example.com:0' } }, /^Invalid egress proxy config: port/],
  [{ egressProxy: { address: 'proxy.example.com:99999' } }, /^Invalid egress proxy config: port/],
  [{ egressProxy: { address: '10.0.0.1:1080' } }, /^Invalid egress proxy config: .*private/],
  [{ egressProxy: { address: '[::1]:1080' } }, /^Invalid egress proxy config: .*private/],
  [{ egressProxy: { address: '[::ffff:127.0.0.1]:1080' } }, /^Invalid egress proxy config: .*private/],
  [{ egressProxy: { address: 'localhost:1080' } }, /^Invalid egress proxy config: .*private/],
  [{ egressProxy: { address: 'a:1080', password: 'p' } }, /^Invalid egress proxy config: a password needs/],
  [
    { egressProxy: { address: 'a:1080', username: 'ü'.repeat(128) } },
    /^Invalid egress proxy config: username is longer/,
  ],
  [{ rules: many(11, (n) => [`${n}.com`, []]) }, /at most 10 domains/],
  [{ rules: { 'a.com': [...header({}), ...header({})] } }, /at most one transform/],
  [{ rules: { 'a.com': header(many(21, (n) => [`h${n}`, ''])) } }, /at most 20 headers/],
  [{ rules: { 'a.com': header({ ['h'.repeat(65)]: '' }) } }, /invalid header name/],
  [{ rules: { 'a.com': header({ 'a b': '' }) } }, /invalid header name/],
  [{ rules: { 'a.com': header({ a: 'x'.repeat(2049) }) } }, /invalid value/],
  [{ rules: { 'a.com': header({ a: 'x\r\nb: c' }) } }, /invalid value/],
  [{ rules: { [`${'a'.repeat(60)}.${'b'.repeat(60)}.${'c'.repeat(20)}`]: [] } }, /invalid domain/],
  [{ rules: { '1.1.1.1': [] } }, /invalid domain/],
  [{ rules: { '*': [] } }, /invalid domain/],
  [{ rules: { 'a.com': [], 'A.com': [] } }, /twice/],
  [{ maskRequestHost: 'a b' }, /invalid maskRequestHost/],
  [{ maskRequestHost: 'http://a/' }, /invalid maskRequestHost/],
  [{ httpsPorts: [0] }, /invalid port 0/],
  [{ httpsPorts: [49983] }, /49983 is not allowed/],
])('refuses %j', (network, why) => {
  expect(() => checkNetwork(network, false)).toThrow(why);
});

it('takes a denied internet for the deny-all that domains need', () => {
  expect(checkNetwork({ allowOut: ['Example.com'] }, true)).toEqual({ allowOut: ['example.com'] });
});

it('lower-cases the domains of rules', () => {
  expect(checkNetwork({ rules: { 'API.Example.com': [] } }, false)).toEqual({ rules: { 'api.example.com': [] } });
});
