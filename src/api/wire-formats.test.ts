import { describe, expect, it } from 'vitest';
import { firstMillisecond } from './date-time.ts';
import { decodeNextToken, encodeNextToken } from './list-cursor.ts';
import { parseMetadataFilter } from './metadata-filter.ts';
import { parseSandboxId } from './sandbox-id.ts';

describe('next tokens', () => {
  const position = { time: 1_790_000_000_123, id: 'iabc' };

  it('come back as they went, in their own order only', () => {
    for (const order of ['asc', 'desc'] as const)
      expect(decodeNextToken(encodeNextToken(position, order), order)).toEqual(position);
    expect(() => decodeNextToken(encodeNextToken(position, 'asc'), 'desc')).toThrow('Invalid next token');
    expect(() => decodeNextToken(encodeNextToken(position, 'desc'), 'asc')).toThrow('Invalid next token');
  });

  it.each(['x', '====', Buffer.from('2026-99-01T00:00:00.000Z__i1').toString('base64url')])('refuses %j', (token) => {
    expect(() => decodeNextToken(token)).toThrow('Invalid next token');
  });
});

describe('the metadata filter', () => {
  /** As the SDKs write it, after the query was decoded. */
  const fromSdk = (metadata: Record<string, string>) =>
    new URLSearchParams(
      Object.entries(metadata).map(([key, value]): [string, string] => [
        encodeURIComponent(key),
        encodeURIComponent(value),
      ]),
    ).toString();

  it.each<Record<string, string>>([
    { 'a b': 'c' },
    { a: '1', b: '2' },
    { 'x&y=z': 'p&q=r' },
    { plus: 'a+b c', percent: '100%', slash: '/?#' },
    { ünï: '☃', empty: '' },
  ])('reads what the SDKs send for %j', (metadata) => {
    expect(parseMetadataFilter(fromSdk(metadata))).toEqual(metadata);
  });

  it.each([
    ['user=abc', { user: 'abc' }],
    ['a%20b=c%26d', { 'a b': 'c&d' }],
    ['a=b=c', { a: 'b=c' }],
    ['a=100%', { a: '100%' }],
    ['a%3Db', { a: 'b' }],
    ['', {}],
    [undefined, {}],
  ])('reads %j as people write it', (text, metadata) => {
    expect(parseMetadataFilter(text)).toEqual(metadata);
  });
});

describe('sandbox IDs', () => {
  it('may carry the legacy client part', () => {
    expect(parseSandboxId('iabc0')).toBe('iabc0');
    expect(parseSandboxId('iabc0-6532622b')).toBe('iabc0');
  });

  it.each(['', 'A', 'a-b-c', 'a_b', '-a', 'a-', '../x'])('refuses %j', (text) => {
    expect(() => parseSandboxId(text)).toThrow('Invalid sandbox ID');
  });
});

it('rounds microseconds up, so that a row before the time stays out', () => {
  expect(firstMillisecond('2026-01-01T00:00:00.123Z')).toBe(Date.UTC(2026, 0, 1, 0, 0, 0, 123));
  expect(firstMillisecond('2026-01-01T00:00:00.123000Z')).toBe(Date.UTC(2026, 0, 1, 0, 0, 0, 123));
  expect(firstMillisecond('2026-01-01T00:00:00.123001Z')).toBe(Date.UTC(2026, 0, 1, 0, 0, 0, 124));
  expect(firstMillisecond('2026-01-01T02:00:00+02:00')).toBe(Date.UTC(2026, 0, 1));
});
