import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeTlsFiles, type TlsFiles } from '../../src/cli/tls.ts';
import { runCommand } from '../../src/core/command.ts';
import { findProgram } from '../../src/setup/find-program.ts';
import { startTestService, TEST_DOMAIN, type TestService } from '../support/service.ts';

const SERVER = readFileSync(path.join(import.meta.dirname, 'guest-server.mjs'), 'utf8');
const CHROMIUM = findProgram('chromium');
const root = path.resolve(import.meta.dirname, '../..');

/** A user on a laptop without internet: the service speaks TLS by `sandbar tls`, and the domain leads to this machine. */
describe('over TLS of our own', () => {
  let service: TestService;
  let files: TlsFiles;
  let directory: string;

  beforeAll(async () => {
    directory = mkdtempSync(path.join(tmpdir(), 'sandbar-laptop-'));
    files = await makeTlsFiles({ stateDir: directory, domain: TEST_DOMAIN });
    setDefaultCACertificates([...getCACertificates('default'), readFileSync(files.authority, 'utf8')]);
    service = await startTestService({
      runtime: 'container',
      env: {
        SANDBAR_TLS_CERT: files.certificate,
        SANDBAR_TLS_KEY: files.key,
      },
    });
  });
  afterAll(async () => {
    await service?.dispose();
    rmSync(directory, { recursive: true, force: true });
  });

  /** Runs a program for which the names of the domain lead here, as a name server on the laptop would have it. */
  async function onLaptop(program: string, args: string[], names: string[], env: Record<string, string> = {}) {
    const hosts = path.join(directory, 'hosts');
    writeFileSync(hosts, `127.0.0.1 localhost ${names.map((name) => `${name}.${TEST_DOMAIN}`).join(' ')}\n`);
    const script = 'mount --bind "$0" /etc/hosts && exec "$@"';
    return runCommand('unshare', ['--mount', 'sh', '-c', script, hosts, program, ...args], {
      cwd: root,
      timeoutMs: 120_000,
      env: { PATH: process.env['PATH'], HOME: directory, ...env },
    });
  }

  it('the SDKs need the domain and the key alone: getHost and signed URLs work', async () => {
    const sandbox = await serving(service);
    const script = `
      import { Sandbox } from 'e2b';
      const sandbox = await Sandbox.connect(${JSON.stringify(sandbox.sandboxId)});
      const { stdout } = await sandbox.commands.run('echo over tls');
      await sandbox.files.write('/home/user/f', 'signed');
      const signed = await (await fetch(await sandbox.downloadUrl('/home/user/f'))).text();
      const page = await (await fetch('https://' + sandbox.getHost(3000) + '/x')).json();
      console.log(JSON.stringify({ stdout, signed, url: page.url, host: page.headers.host }));
    `;
    const { stdout } = await onLaptop(
      process.execPath,
      ['--input-type=module', '-e', script],
      ['api', `49983-${sandbox.sandboxId}`, `3000-${sandbox.sandboxId}`],
      {
        E2B_DOMAIN: `${TEST_DOMAIN}:${service.port}`,
        E2B_API_KEY: service.apiKey,
        NODE_EXTRA_CA_CERTS: files.authority,
      },
    );
    expect(JSON.parse(stdout)).toEqual({
      stdout: 'over tls\n',
      signed: 'signed',
      url: '/x',
      host: `3000-${sandbox.sandboxId}.${TEST_DOMAIN}:${service.port}`,
    });
    await sandbox.kill();
  });

  it.skipIf(CHROMIUM === undefined || findProgram('certutil') === undefined)(
    'Chromium opens a page in a sandbox, with a WebSocket on it',
    async () => {
      const sandbox = await serving(service);
      const browse = path.join(import.meta.dirname, 'browse.ts');
      const url = `https://3000-${sandbox.sandboxId}.${TEST_DOMAIN}:${service.port}/page`;
      const { stdout } = await onLaptop(process.execPath, [browse, url, files.authority], [], {
        CHROMIUM: CHROMIUM ?? '',
      });
      expect(JSON.parse(stdout)).toMatchObject({ title: 'In a sandbox', state: 'echo: from the page', protocol: 'h2' });
      await sandbox.kill();
      const gone = await onLaptop(process.execPath, [browse, url, files.authority], [], { CHROMIUM: CHROMIUM ?? '' });
      expect(JSON.parse(gone.stdout)).toMatchObject({
        status: 502,
        text: expect.stringContaining('The sandbox was not found'),
      });
    },
  );
});

/** A sandbox with a server in it, made by header routing over the same port: its id is not known before. */
async function serving(service: TestService): Promise<Sandbox> {
  const sandbox = await Sandbox.create('base', { timeoutMs: 300_000, ...service.connection });
  await sandbox.files.write('/home/user/server.mjs', SERVER);
  const started = await sandbox.commands.run('node /home/user/server.mjs', { background: true, timeoutMs: 0 });
  void started.wait().catch(() => undefined);
  await expect.poll(() => started.stdout, { timeout: 30_000 }).toContain('ready');
  return sandbox;
}
