import { generateKeyPairSync } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from './command.ts';

/** PEM texts. */
export interface Certificate {
  cert: string;
  key: string;
}

const AUTHORITY_DAYS = 3650;
/** Browsers refuse server certificates that are valid for longer. */
const SERVER_DAYS = 397;
const MAX_COMMON_NAME = 64;
const AUTHORITY_KEY = 'ca-key.pem';
/** All servers of one authority share a key: making one takes longer than signing. */
const SERVER_KEY = 'server-key.pem';

/** A certificate authority of this installation's own: its certificate is what others are told to trust, its key never leaves its directory. */
export class Authority {
  readonly certificate: string;
  readonly #directory: string;

  private constructor(directory: string, certificate: string) {
    this.#directory = directory;
    this.certificate = certificate;
  }

  get certificateFile(): string {
    return path.join(this.#directory, 'ca.pem');
  }

  /** The authority of a directory, made when it is not there yet. */
  static async open(directory: string, commonName: string): Promise<Authority> {
    const certificateFile = path.join(directory, 'ca.pem');
    const made = await readFile(certificateFile, 'utf8').catch(() => undefined);
    if (made !== undefined) return new Authority(directory, made);

    await mkdir(directory, { recursive: true, mode: 0o700 });
    for (const file of [AUTHORITY_KEY, SERVER_KEY])
      await writeFile(path.join(directory, file), newKey(), { mode: 0o600 });
    const { stdout } = await openssl(
      ['-key', path.join(directory, AUTHORITY_KEY), '-subj', `/CN=${commonName}`, '-days', String(AUTHORITY_DAYS)],
      ['basicConstraints=critical,CA:TRUE,pathlen:0', 'keyUsage=critical,keyCertSign,cRLSign'],
    );
    // Last, and whole or not at all: its presence says that the keys are there too.
    await writeFile(`${certificateFile}.new`, stdout);
    await rename(`${certificateFile}.new`, certificateFile);
    return new Authority(directory, stdout);
  }

  /** A certificate for a server that has these names. */
  async issue(names: readonly [string, ...string[]]): Promise<Certificate> {
    const keyFile = path.join(this.#directory, SERVER_KEY);
    const [first] = names;
    // Nobody reads the common name any more, but an empty subject is refused by some.
    const subject = first.length > MAX_COMMON_NAME ? 'sandbar' : first;
    const { stdout } = await openssl(
      [
        ...['-CA', this.certificateFile, '-CAkey', path.join(this.#directory, AUTHORITY_KEY), '-key', keyFile],
        ...['-subj', `/CN=${subject}`, '-days', String(SERVER_DAYS)],
      ],
      [
        'basicConstraints=critical,CA:FALSE',
        'keyUsage=critical,digitalSignature',
        'extendedKeyUsage=serverAuth',
        `subjectAltName=${names.map((name) => `DNS:${name}`).join(',')}`,
      ],
    );
    return { cert: stdout, key: await readFile(keyFile, 'utf8') };
  }
}

function newKey(): string {
  const { privateKey } = generateKeyPairSync('ec', {
    namedCurve: 'P-256',
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  });
  return privateKey;
}

/** A signed certificate on standard output. The machine's own configuration of openssl is not read. */
function openssl(args: readonly string[], extensions: readonly string[]) {
  const added = extensions.flatMap((extension) => ['-addext', extension]);
  return runCommand('openssl', ['req', '-x509', '-new', '-config', '/dev/null', '-sha256', ...args, ...added]);
}
