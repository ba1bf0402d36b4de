import http from 'node:http';
import { beforeAll, describe, expect, it } from 'vitest';
import { frame } from '../support/connect-frames.ts';
import { ENVD_PORT, type Json, RawSandbox } from '../support/raw.ts';
import { describeOnRuntimes } from '../support/service.ts';

const UNAUTHORIZED = {
  code: 401,
  message: 'unauthorized access, please provide a valid access token or method signing if supported',
};
const CONNECT = { 'content-type': 'application/json', 'connect-protocol-version': '1' };

interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: string;
}

describeOnRuntimes('access', (service) => {
  let secure: RawSandbox;
  let open: RawSandbox;
  beforeAll(async () => {
    [secure, open] = await Promise.all([
      RawSandbox.create(service(), { envVars: { GLOBAL: 'yes' } }),
      RawSandbox.create(service(), { secure: false }),
    ]);
  });

  /** A request with any Host header, which fetch does not allow. */
  const ask = (
    pathname: string,
    headers: Record<string, string>,
    options: { method?: string; body?: string | Buffer } = {},
  ): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const request = http.request(
        { host: '127.0.0.1', port: service().port, path: pathname, method: options.method ?? 'GET', headers },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('end', () =>
            resolve({
              status: response.statusCode ?? 0,
              headers: response.headers,
              body: Buffer.concat(chunks).toString(),
            }),
          );
        },
      );
      request.on('error', reject);
      request.end(options.body);
    });
  const without = (sandbox: RawSandbox, header: string) =>
    Object.fromEntries(Object.entries(sandbox.headers).filter(([name]) => name !== header));
  const hostOf = (sandbox: RawSandbox, port = ENVD_PORT) => `${port}-${sandbox.id}.${service().domain}`;

  describe('a secure sandbox', () => {
    const everything = [
      ['POST', '/process.Process/List', CONNECT, '{}'],
      ['POST', '/filesystem.Filesystem/Stat', CONNECT, '{"path":"/"}'],
      ['GET', '/metrics', {}, undefined],
      ['GET', '/envs', {}, undefined],
      ['POST', '/files/compose', { 'content-type': 'application/json' }, '{}'],
      ['GET', '/nothing', {}, undefined],
    ] as const;

    it.each(everything)(
      'refuses %s %s without the token, and with a wrong one',
      async (method, path, headers, body) => {
        const wrongs = ['', 'guess', `${secure.created['envdAccessToken']}x`, String(open.id)];
        for (const token of [undefined, ...wrongs]) {
          const answer = await ask(
            path,
            {
              ...without(secure, 'x-access-token'),
              ...headers,
              ...(token !== undefined && { 'x-access-token': token }),
            },
            { method, ...(body !== undefined && { body }) },
          );
          expect(answer.status).toBe(401);
          expect(answer.headers['content-type']).toMatch(/^application\/json/);
          expect(JSON.parse(answer.body)).toEqual(UNAUTHORIZED);
        }
      },
    );

    it('refuses a stream the same way, as plain JSON', async () => {
      const answer = await ask(
        '/process.Process/Start',
        {
          ...without(secure, 'x-access-token'),
          'content-type': 'application/connect+json',
          'connect-protocol-version': '1',
        },
        { method: 'POST', body: frame({ process: { cmd: 'id' } }) },
      );
      expect(answer.status).toBe(401);
      expect(JSON.parse(answer.body)).toEqual(UNAUTHORIZED);
    });

    it('says what is wrong with a file request', async () => {
      const missing = await ask('/files?path=/etc/hostname', without(secure, 'x-access-token'));
      expect(missing.status).toBe(401);
      expect(JSON.parse(missing.body)).toEqual({ code: 401, message: 'missing signature query parameter' });
      const wrong = await ask('/files?path=/etc/hostname', { ...secure.headers, 'x-access-token': 'guess' });
      expect(JSON.parse(wrong.body)).toEqual({
        code: 401,
        message: 'access token present in header but does not match',
      });
      const write = await ask('/files?path=/tmp/x', without(secure, 'x-access-token'), { method: 'POST', body: 'x' });
      expect(JSON.parse(write.body)).toEqual({ code: 401, message: 'missing signature query parameter' });
    });

    it('says that it is there to anyone', async () => {
      expect(await ask('/health', without(secure, 'x-access-token'))).toMatchObject({ status: 204, body: '' });
      const head = await ask('/health', secure.headers, { method: 'POST' });
      expect(head.status).toBe(405);
    });

    it('has a token that get and connect tell again', async () => {
      const token = secure.created['envdAccessToken'];
      expect(token).toMatch(/./);
      const detail = (await (await service().fetch(`/sandboxes/${secure.id}`)).json()) as Json;
      expect(detail['envdAccessToken']).toBe(token);
      const connected = await service().fetch(`/sandboxes/${secure.id}/connect`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{"timeout":60}',
      });
      expect(connected.status).toBe(200);
      expect(((await connected.json()) as Json)['envdAccessToken']).toBe(token);
    });
  });

  describe('a sandbox that is not secure', () => {
    it('has no token and asks for none', async () => {
      expect(open.created['envdAccessToken'] ?? null).toBeNull();
      expect(open.headers).not.toHaveProperty('x-access-token');
      expect((await open.run('id -un')).stdout).toBe('user\n');
      expect(await (await open.fetch('/files?path=/etc/hostname')).text()).toMatch(/./);
      expect((await open.fetch('/envs')).status).toBe(200);
      const withToken = await open.fetch('/envs', { headers: { 'x-access-token': 'whatever' } });
      expect(withToken.status).toBe(200);
    });

    it('made by the newer way of creating is secure all the same', async () => {
      const response = await service().fetch('/v2/sandboxes', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{"templateID":"base"}',
      });
      expect(response.status).toBe(201);
      const created = (await response.json()) as Json;
      expect(created['envdAccessToken']).toMatch(/./);
      await service().fetch(`/sandboxes/${created['sandboxID']}`, { method: 'DELETE' });
    });
  });

  describe('paths of the control plane', () => {
    it.each([
      '/init',
      '/freeze',
      '/unfreeze',
      '/collapse',
      '/fsfreeze',
      '/fsthaw',
      '/upgrade',
      '//init',
      '/init/',
      '/init?x=1',
    ])('%s is not reachable', async (path) => {
      for (const method of ['POST', 'GET']) {
        for (const headers of [secure.headers, open.headers, { host: hostOf(open) }]) {
          const answer = await ask(path, headers, { method });
          expect(answer.status).toBe(404);
          expect(JSON.parse(answer.body)).toMatchObject({
            code: 404,
            message: 'This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL',
          });
        }
      }
    });
  });

  describe('what the sandbox says of itself', () => {
    it('/envs: the environment that every process has', async () => {
      expect(await (await secure.fetch('/envs')).json()).toEqual({
        GLOBAL: 'yes',
        E2B_SANDBOX: 'true',
        E2B_SANDBOX_ID: secure.id,
        E2B_TEMPLATE_ID: secure.created['templateID'],
      });
    });

    it('/metrics: what it uses', async () => {
      const metrics = (await (await secure.fetch('/metrics')).json()) as Record<string, number>;
      expect(Object.keys(metrics).sort()).toEqual([
        ...['cpu_count', 'cpu_used_pct', 'disk_total', 'disk_used', 'mem_cache', 'mem_total', 'mem_total_mib'],
        ...['mem_used', 'mem_used_mib', 'ts'],
      ]);
      expect(Math.abs((metrics['ts'] ?? 0) - Date.now() / 1000)).toBeLessThan(5);
      expect(metrics['cpu_count']).toBeGreaterThanOrEqual(1);
      expect(metrics['mem_total']).toBeGreaterThan(100 * 1024 * 1024);
      expect(metrics['mem_used']).toBeLessThan(metrics['mem_total'] as number);
      expect(metrics['disk_total']).toBeGreaterThan(1_000_000_000);
    });

    it('marks for scripts, inside', async () => {
      const { stdout } = await secure.run(
        'cat /run/e2b/.E2B_SANDBOX_ID; echo; cat /run/e2b/.E2B_SANDBOX; echo; ls -d /.e2b',
      );
      expect(stdout.split('\n').slice(0, 3)).toEqual([secure.id, 'true', '/.e2b']);
    });
  });

  describe('CORS', () => {
    it('lets pages of any origin ask, before any token', async () => {
      const answer = await ask(
        '/process.Process/Start',
        {
          ...without(secure, 'x-access-token'),
          origin: 'https://page.example',
          'access-control-request-method': 'POST',
          'access-control-request-headers': 'authorization,connect-protocol-version,x-access-token',
        },
        { method: 'OPTIONS' },
      );
      expect(answer.status).toBe(204);
      expect(answer.headers['access-control-allow-origin']).toBe('*');
      expect(answer.headers['access-control-allow-methods']).toContain('POST');
      expect(answer.headers['access-control-allow-headers']).toContain('x-access-token');
    });

    it('shows answers and errors to them', async () => {
      for (const path of ['/health', '/files?path=/etc/hostname', '/files?path=/missing', '/metrics']) {
        const answer = await ask(path, { ...secure.headers, origin: 'https://page.example' });
        expect(answer.headers['access-control-allow-origin']).toBe('*');
      }
      const refused = await ask('/metrics', { ...without(secure, 'x-access-token'), origin: 'https://page.example' });
      expect(refused.headers['access-control-allow-origin']).toBe('*');
    });
  });

  describe('addresses', () => {
    it('lead to a sandbox by host', async () => {
      expect((await ask('/health', { host: hostOf(secure) })).status).toBe(204);
      expect((await ask('/health', { host: `${hostOf(secure)}:1234` })).status).toBe(204);
      expect((await ask('/health', { host: hostOf(secure).toUpperCase() })).status).toBe(204);
      // The id of a client, of old.
      expect((await ask('/health', { host: `49983-${secure.id}-client.${service().domain}` })).status).toBe(204);
    });

    it('lead to a sandbox by headers, both of them', async () => {
      expect((await ask('/health', { host: 'localhost', ...secure.headers })).status).toBe(204);
      expect((await ask('/health', { host: `sandbox.${service().domain}`, ...secure.headers })).status).toBe(204);
      const half = await ask('/health', { host: 'localhost', 'e2b-sandbox-id': secure.id });
      expect(half).toMatchObject({ status: 400, body: expect.stringContaining('missing header') });
      const noId = await ask('/health', { host: 'localhost', 'e2b-sandbox-port': '49983' });
      expect(noId.status).toBe(400);
    });

    it('prefer the host over headers', async () => {
      const answer = await ask('/envs', { ...secure.headers, host: hostOf(open) });
      expect(JSON.parse(answer.body)).toMatchObject({ E2B_SANDBOX_ID: open.id });
    });

    it.each([
      ['70000', 'Invalid sandbox port'],
      ['x', 'Invalid sandbox port'],
      ['0', 'Invalid sandbox port'],
    ])('port %s', async (port, message) => {
      for (const headers of [
        { host: `${port}-${secure.id}.${service().domain}` },
        { host: 'localhost', 'e2b-sandbox-id': secure.id, 'e2b-sandbox-port': port },
      ]) {
        const answer = await ask('/', headers);
        expect(answer.status).toBe(400);
        expect(answer.headers['content-type']).toMatch(/^text\/plain/);
        expect(answer.body).toContain(message);
      }
    });

    it('of ids that are none', async () => {
      const answer = await ask('/', { host: 'localhost', 'e2b-sandbox-id': '../etc', 'e2b-sandbox-port': '49983' });
      expect(answer).toMatchObject({ status: 400, body: expect.stringContaining('Invalid sandbox ID') });
    });

    it('of sandboxes that are not there', async () => {
      const id = 'i00000000000000000zzz';
      const answer = await ask('/health', { host: `49983-${id}.${service().domain}` });
      expect(answer.status).toBe(502);
      expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
      expect(JSON.parse(answer.body)).toEqual({ sandboxId: id, message: 'The sandbox was not found', code: 502 });
      const browser = await ask('/health', {
        host: `49983-${id}.${service().domain}`,
        'user-agent': 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120 Safari/537.36',
        accept: 'text/html',
        'sec-fetch-mode': 'navigate',
      });
      expect(browser.status).toBe(502);
      expect(browser.headers['content-type']).toMatch(/^text\/html/);
    });
  });

  describe('ports', () => {
    it('say when nothing listens', async () => {
      const answer = await ask('/', { host: hostOf(secure, 5999) });
      expect(answer.status).toBe(502);
      expect(JSON.parse(answer.body)).toEqual({
        sandboxId: secure.id,
        message: 'The sandbox is running but port is not open',
        port: 5999,
        code: 502,
      });
    });

    it.each(['0.0.0.0', '127.0.0.1'])('reach a program that listens on %s', async (address) => {
      const port = address === '0.0.0.0' ? 8001 : 8002;
      await secure.write('/home/user/site/page.txt', `served from ${address}`);
      const command = `cd /home/user/site && exec python3 -m http.server --bind ${address} ${port}`;
      await secure.start(command, { stdin: false });
      await expect
        .poll(async () => (await ask('/page.txt', { host: hostOf(secure, port) })).body, {
          timeout: 15_000,
          interval: 200,
        })
        .toBe(`served from ${address}`);
      const byHeaders = await ask('/page.txt', {
        ...secure.headers,
        host: 'localhost',
        'e2b-sandbox-port': String(port),
      });
      expect(byHeaders.body).toBe(`served from ${address}`);
    });

    it('wait a moment for a program that is about to listen', async () => {
      const late = ask('/', { host: hostOf(secure, 8003) });
      await secure.start('exec python3 -m http.server --bind 127.0.0.1 8003', { stdin: false });
      expect([200, 502]).toContain((await late).status);
      await expect
        .poll(async () => (await ask('/', { host: hostOf(secure, 8003) })).status, { timeout: 10_000 })
        .toBe(200);
    });

    it('leave the agent alone', async () => {
      // The agent's own port is none of the sandbox's.
      const ports = (await secure.run("ss -tlnH 2>/dev/null | awk '{print $4}' | grep -o '[0-9]*$' || true")).stdout;
      const candidates = new Set([49981, ...ports.trim().split('\n').map(Number)].filter((port) => port > 0));
      for (const port of [...candidates].filter((one) => ![8001, 8002, 8003].includes(one))) {
        const answer = await ask('/', { host: hostOf(secure, port) });
        expect(answer.status).toBeGreaterThanOrEqual(400);
      }
      expect(await secure.goesOn()).toBe(true);
    });
  });

  it('a token of one sandbox does not open another', async () => {
    const other = await RawSandbox.create(service());
    const answer = await ask('/envs', {
      ...other.headers,
      'x-access-token': String(secure.created['envdAccessToken']),
    });
    expect(answer.status).toBe(401);
    await service().fetch(`/sandboxes/${other.id}`, { method: 'DELETE' });
    const gone = await ask('/envs', other.headers);
    expect(gone.status).toBe(502);
  });
});
