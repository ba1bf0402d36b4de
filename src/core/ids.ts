import { randomBytes, randomUUID } from 'node:crypto';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** `i` and 20 characters: no hyphen, since a host label is split at it. Of one length, since runsc matches ids by prefix. */
export function newSandboxId(): string {
  return `i${randomText(20)}`;
}

export function newTemplateId(): string {
  return randomText(20);
}

export function newUuid(): string {
  return randomUUID();
}

/** Random bytes as lower-case hex, `bytes * 2` characters long. */
export function randomHex(bytes: number): string {
  return randomBytes(bytes).toString('hex');
}

/** Characters of [a-z0-9], each equally likely. */
export function randomText(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // 252 is the largest multiple of 36 in a byte: what is above would favour the first letters.
      if (byte < 252 && text.length < length) text += ALPHABET[byte % ALPHABET.length];
    }
  }
  return text;
}
