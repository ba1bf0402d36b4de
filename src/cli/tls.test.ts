import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { runTls } from './tls.ts';

let stateDir: string;
beforeEach(() => {
  stateDir = mkdtempSync(path.join(tmpdir(), 'sandbar-tls-'));
});
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(stateDir, { recursive: true });
});

it('makes a certificate for every name below the domain, and says what to do with it', async () => {
  const output: string[] = [];
  vi.spyOn(console, 'log').mockImplementation((line) => void output.push(line));
  expect(await runTls({ stateDir, domain: 'sandbar.local:8443', port: 7070 })).toBe(0);
  const read = (file: string) => readFileSync(path.join(stateDir, 'tls', file), 'utf8');
  const [authority, certificate] = [new X509Certificate(read('ca.pem')), new X509Certificate(read('cert.pem'))];
  expect(certificate.verify(authority.publicKey)).toBe(true);
  for (const name of ['api.sandbar.local', '3000-iabc.sandbar.local', 'sandbar.local'])
    expect(certificate.checkHost(name), name).toBeTruthy();
  expect(read('bundle.pem')).toContain(read('ca.pem').trim());
  for (const words of [
    'E2B_DOMAIN=sandbar.local:8443',
    `SANDBAR_TLS_CERT=${stateDir}/tls/cert.pem`,
    'NODE_EXTRA_CA_CERTS',
  ])
    expect(output.join('\n')).toContain(words);

  // Made again, it is trusted by whoever trusted the first.
  await runTls({ stateDir, domain: 'other.local', port: 7070 });
  expect(new X509Certificate(read('cert.pem')).verify(authority.publicKey)).toBe(true);
});
