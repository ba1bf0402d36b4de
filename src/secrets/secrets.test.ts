import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { Seal } from './sealing.ts';

test('a sealed value opens with its key, for its owner, and not otherwise', () => {
  const seal = new Seal(randomBytes(32));
  const sealed = seal.close('päss', 'team secret');
  expect(sealed).not.toContain('päss');
  expect(seal.open(sealed, 'team secret')).toBe('päss');
  expect(seal.close('päss', 'team secret')).not.toBe(sealed);
  expect(() => seal.open(sealed, 'team other')).toThrow();
  expect(() => new Seal(randomBytes(32)).open(sealed, 'team secret')).toThrow();
});
