import { createHash, timingSafeEqual } from 'node:crypto';
import { randomHex } from '../core/ids.ts';
import type { Mask } from '../db/schema.ts';

export const API_KEY_PREFIX = 'e2b_';
export const ACCESS_TOKEN_PREFIX = 'sk_e2b_';

/** A secret value that a client presents, and what is stored of it. */
export interface Credential {
  /** Shown once, when it is made. */
  value: string;
  hash: string;
  mask: Mask;
}

const RANDOM_BYTES = 20;
const HEX = /^[0-9a-f]{40}$/i;

export function newCredential(prefix: string): Credential {
  return credentialOf(prefix, prefix + randomHex(RANDOM_BYTES));
}

export function credentialOf(prefix: string, value: string): Credential {
  const hash = hashOf(prefix, value);
  if (hash === undefined) throw new Error(`a credential is ${prefix} and ${RANDOM_BYTES * 2} hex digits`);
  const secret = value.slice(prefix.length);
  const mask = {
    prefix,
    valueLength: secret.length,
    maskedValuePrefix: secret.slice(0, 2),
    maskedValueSuffix: secret.slice(-4),
  };
  return { value, hash, mask };
}

/** The stored form of a presented value, or undefined when it cannot be one of ours. The hash covers the bytes, not the hex. */
export function hashOf(prefix: string, value: string): string | undefined {
  const secret = value.slice(prefix.length);
  if (!value.startsWith(prefix) || !HEX.test(secret)) return undefined;
  const digest = createHash('sha256').update(Buffer.from(secret, 'hex')).digest('base64');
  return `$sha256$${digest.replace(/=+$/, '')}`;
}

/** Compares in a time that does not tell how much of the two agrees. */
export function sameHash(one: string, other: string): boolean {
  const [left, right] = [Buffer.from(one), Buffer.from(other)];
  return left.length === right.length && timingSafeEqual(left, right);
}
