import { expect, test } from 'vitest';
import { AddressSet } from './address-set.ts';

test('an address is found in the range that holds it', () => {
  const set = new AddressSet(['203.0.113.0/24', '198.51.100.7', '8.8.8.8/32']);
  for (const inside of ['203.0.113.0', '203.0.113.255', '198.51.100.7', '8.8.8.8'])
    expect(set.contains(inside), inside).toBe(true);
  for (const outside of ['203.0.112.255', '203.0.114.0', '198.51.100.6', '8.8.8.9', '0.0.0.0', '255.255.255.255'])
    expect(set.contains(outside), outside).toBe(false);
});

test('ranges that touch or overlap become one', () => {
  const set = new AddressSet(['10.0.0.0/25', '10.0.0.128/25', '10.0.0.64/26', '10.0.2.1', '10.0.2.2']);
  expect(set.elements()).toEqual(['10.0.0.0-10.0.0.255', '10.0.2.1-10.0.2.2']);
});

test('a range is taken from any address in it', () => {
  expect(new AddressSet(['203.0.113.77/24']).elements()).toEqual(['203.0.113.0-203.0.113.255']);
});

test('everything and nothing are known as such', () => {
  expect(new AddressSet(['0.0.0.0/0', '8.8.8.8']).isEverything).toBe(true);
  expect(new AddressSet(['0.0.0.0/1', '128.0.0.0/1']).isEverything).toBe(true);
  expect(new AddressSet(['0.0.0.0/1']).isEverything).toBe(false);
  expect(new AddressSet([]).isEmpty).toBe(true);
  expect(new AddressSet([]).isEverything).toBe(false);
});

test('IPv6 opens nothing', () => {
  const set = new AddressSet(['::/0', '2001:db8::1', '::ffff:8.8.8.8']);
  expect(set.isEmpty).toBe(true);
  expect(set.contains('::ffff:8.8.8.8')).toBe(false);
});
