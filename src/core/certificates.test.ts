import { X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Authority } from './certificates.ts';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'sandbar-authority-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

test('an authority is made once, and signs for the names it is given', async () => {
  const authority = await Authority.open(path.join(directory, 'ca'), 'Sandbar test');
  const again = await Authority.open(path.join(directory, 'ca'), 'Sandbar test');
  expect(again.certificate).toBe(authority.certificate);
  expect(statSync(path.join(directory, 'ca/ca-key.pem')).mode & 0o077).toBe(0);

  const issuer = new X509Certificate(authority.certificate);
  expect(issuer.ca).toBe(true);
  const long = `${'a'.repeat(60)}.example.test`;
  const { cert } = await again.issue(['*.example.test', 'example.test', long]);
  const issued = new X509Certificate(cert);
  expect(issued.ca).toBe(false);
  expect(issued.checkIssued(issuer)).toBe(true);
  expect(issued.verify(issuer.publicKey)).toBe(true);
  for (const name of ['api.example.test', 'example.test']) expect(issued.checkHost(name)).toBeTruthy();
  expect(issued.checkHost('other.test')).toBeUndefined();
});
