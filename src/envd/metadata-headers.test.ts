import { expect, test } from 'vitest';
import { metadataFromHeaders } from './metadata-headers.ts';

test('headers with the prefix become metadata', () => {
  const metadata = metadataFromHeaders({ 'x-metadata-author': 'me', 'x-metadata-run-id': '7', accept: '*/*' });
  expect(metadata).toEqual({ author: 'me', 'run-id': '7' });
});

test.each([
  [{ 'x-metadata-': 'x' }],
  [{ [`x-metadata-${'k'.repeat(247)}`]: 'x' }],
  [{ 'x-metadata-a': 'gr\u00f6\u00dfe' }],
  [{ 'x-metadata-a': 'v'.repeat(4096) }],
])('refused: %o', (headers) => {
  expect(() => metadataFromHeaders(headers)).toThrow(/metadata/);
});
