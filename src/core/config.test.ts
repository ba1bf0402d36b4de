import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadConfig } from './config.ts';

const KEY = `e2b_${'0123456789'.repeat(4)}`;
const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-config-'));
afterAll(() => rmSync(directory, { recursive: true }));

describe('loadConfig', () => {
  it('has a default for everything', () => {
    expect(loadConfig({})).toMatchObject({
      port: 7070,
      stateDir: '/var/lib/sandbar',
      cacheDir: '/var/cache/sandbar',
      runtime: 'gvisor',
      databaseUrl: undefined,
      apiKey: undefined,
      tls: undefined,
      maxTimeoutSeconds: 24 * 3600,
    });
  });

  it('reads the environment', () => {
    const env = {
      SANDBAR_PORT: '8080',
      SANDBAR_RUNTIME: 'container',
      SANDBAR_API_KEY: KEY,
      SANDBAR_DOMAIN: 'Boxes.example:8080',
    };
    expect(loadConfig(env)).toMatchObject({
      port: 8080,
      runtime: 'container',
      apiKey: KEY,
      domain: 'boxes.example:8080',
    });
  });

  it('lets a flag win over the environment', () => {
    expect(loadConfig({ SANDBAR_PORT: '8080' }, { port: '9090' }).port).toBe(9090);
  });

  it('takes an empty variable as not set', () => {
    expect(loadConfig({ SANDBAR_PORT: '', SANDBAR_API_KEY: '' })).toMatchObject({ port: 7070, apiKey: undefined });
  });

  it.each([
    ['SANDBAR_PORT', 'http', /whole number from 0 to 65535, not 'http'/],
    ['SANDBAR_PORT', '65536', /65536/],
    ['SANDBAR_RUNTIME', 'docker', /gvisor or container, not 'docker'/],
    ['SANDBAR_STATE_DIR', 'state', /absolute path/],
    ['SANDBAR_DATABASE_URL', 'mysql://x', /postgres:\/\//],
    ['SANDBAR_API_KEY', 'e2b_short', /40 hex digits/],
    ['SANDBAR_DOMAIN', 'a b', /domain name/],
    ['SANDBAR_NETWORK_RANGE', '10.0.0.0/8', /\/12 to \/24/],
    ['SANDBAR_NETWORK_RANGE', '10.0.0.256/16', /10\.0\.0\.256/],
    ['SANDBAR_TLS_CERT', '/cert.pem', /go together/],
    ['SANDBAR_WARM_POOL_LEAST', '101', /must not be greater than SANDBAR_WARM_POOL/],
  ])('refuses %s=%s', (name, value, message) => {
    expect(() => loadConfig({ [name]: value })).toThrow(message);
  });

  it('names every setting that is wrong at once', () => {
    expect(() => loadConfig({ SANDBAR_PORT: 'x', SANDBAR_RUNTIME: 'y' })).toThrow(/SANDBAR_PORT.*\n.*SANDBAR_RUNTIME/);
  });

  it('takes TLS files that can be read and refuses those that cannot', () => {
    const certFile = path.join(directory, 'cert.pem');
    writeFileSync(certFile, 'certificate');
    const env = { SANDBAR_TLS_CERT: certFile, SANDBAR_TLS_KEY: certFile };
    expect(loadConfig(env).tls).toEqual({ certFile, keyFile: certFile });
    expect(() => loadConfig({ ...env, SANDBAR_TLS_KEY: `${certFile}.none` })).toThrow(/does not exist/);
  });
});
