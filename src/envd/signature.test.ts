import { expect, test } from 'vitest';
import { type SignedRequest, signatureOf, signatureProblem } from './signature.ts';

const token = '0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0';
const request: SignedRequest = { path: 'hello.txt', operation: 'read', user: 'user', expiration: undefined };

test('the published vector', () => {
  expect(signatureOf(request, token)).toBe('v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E');
});

test('a signature gives access with any token that was issued', () => {
  const signature = signatureOf(request, token);
  expect(signatureProblem(signature, request, ['another', token], 0)).toBeUndefined();
  expect(signatureProblem(signature, request, ['another'], 0)).toBe('invalid signature');
});

test.each([{ path: 'other.txt' }, { operation: 'write' as const }, { user: '' }, { expiration: 5 }])(
  'a signature does not carry over to %o',
  (change) => {
    const signature = signatureOf(request, token);
    expect(signatureProblem(signature, { ...request, ...change }, [token], 0)).toBe('invalid signature');
  },
);

test('expiry is looked at last', () => {
  const expiring = { ...request, expiration: 100 };
  const signature = signatureOf(expiring, token);
  expect(signatureProblem(signature, expiring, [token], 100)).toBeUndefined();
  expect(signatureProblem(signature, expiring, [token], 101)).toBe('signature is already expired');
  expect(signatureProblem('v1_x', expiring, [token], 101)).toBe('invalid signature');
  expect(signatureProblem(undefined, expiring, [token], 101)).toBe('missing signature query parameter');
});
