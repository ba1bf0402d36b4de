import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { SandbarError } from '../core/errors.ts';

const CIPHER = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_FILE = 'secrets.key';

/** Encrypts values for the store, and decrypts what it encrypted. A value is bound to what it belongs to: moved to another row, it does not open. */
export class Seal {
  readonly #key: Buffer;

  constructor(key: Buffer) {
    this.#key = key;
  }

  close(value: string, owner: string): string {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce).setAAD(Buffer.from(owner));
    const sealed = Buffer.concat([cipher.update(value, 'utf8'), cipher.final()]);
    return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64');
  }

  open(sealed: string, owner: string): string {
    const bytes = Buffer.from(sealed, 'base64');
    const nonce = bytes.subarray(0, NONCE_BYTES);
    const cipher = createDecipheriv(CIPHER, this.#key, nonce).setAAD(Buffer.from(owner));
    cipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    return cipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES), undefined, 'utf8') + cipher.final('utf8');
  }
}

/** The key: the one given (64 hex digits), else that of the state directory, made when there is none. */
export function loadSeal(stateDir: string, given: string | undefined): Seal {
  const file = path.join(stateDir, KEY_FILE);
  if (given === undefined && !existsSync(file)) {
    writeFileSync(`${file}.new`, randomBytes(KEY_BYTES).toString('hex'), { mode: 0o600 });
    renameSync(`${file}.new`, file);
  }
  const key = Buffer.from(given ?? readFileSync(file, 'utf8').trim(), 'hex');
  if (key.length !== KEY_BYTES)
    throw new SandbarError(
      'failed_precondition',
      `${given === undefined ? file : 'SANDBAR_SECRETS_KEY'} is not 64 hex digits`,
    );
  return new Seal(key);
}
