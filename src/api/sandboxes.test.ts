import { describe, expect, it } from 'vitest';
import { baseId, call, failure, KEY, rowOf, sandboxes, teamId } from '../../tests/support/api.ts';
import type { CreateSandbox, ListPage, ListQuery } from '../sandboxes/contract.ts';

describe('POST /sandboxes', () => {
  const specs = () => sandboxes.calls.map(([, , spec]) => spec as CreateSandbox);

  it('answers 201 with the handle', async () => {
    expect(await call('POST', '/sandboxes', { templateID: 'base', secure: true })).toMatchObject({ status: 201 });
    const { body } = await call('POST', '/v2/sandboxes', { templateID: 'base' });
    expect(body).toEqual({
      templateID: 'template',
      sandboxID: 'i0000000000000000000a',
      clientID: '6532622b',
      envdVersion: '0.6.13',
      alias: 'base',
      envdAccessToken: 'envd-token',
      trafficAccessToken: null,
      domain: null,
    });
  });

  it('gives null for the token of a sandbox that is not secure, and no alias where there is none', async () => {
    sandboxes.row = rowOf({ secure: false, envdAccessToken: null, alias: null });
    const { body } = await call('POST', '/sandboxes', { templateID: 'base' });
    expect(body).toMatchObject({ envdAccessToken: null });
    expect(body).not.toHaveProperty('alias');
  });

  it('has the defaults of each generation', async () => {
    await call('POST', '/sandboxes', { templateID: 'base' });
    await call('POST', '/v2/sandboxes', { templateID: 'base', secure: false });
    expect(specs()[0]).toEqual({
      templateRef: 'base',
      timeoutSeconds: 15,
      secure: false,
      autoPause: false,
      autoPauseMemory: true,
      autoResume: false,
      allowInternetAccess: null,
      network: null,
      metadata: {},
      envVars: {},
      volumeMounts: [],
    });
    expect(specs()[1]).toMatchObject({ timeoutSeconds: 300, secure: true });
  });

  it('takes what the SDKs send', async () => {
    const sent = {
      templateID: 'base',
      timeout: 0,
      secure: true,
      autoPause: false,
      autoResume: { enabled: false },
      allow_internet_access: true,
      metadata: { 'a b': 'c' },
      envVars: { A: '1' },
      mcp: { github: { token: 'x' } },
      network: { allowPublicTraffic: false, allowOut: [], denyOut: [] },
      volumeMounts: [],
    };
    expect(await call('POST', '/sandboxes', sent)).toMatchObject({ status: 201 });
    const newer = { templateID: 'base', mcp: null, later: 1, network: { allowPublicTraffic: null } };
    expect(await call('POST', '/v2/sandboxes', newer)).toMatchObject({ status: 201 });
    expect(specs()[1]?.network).toEqual({});
    expect(specs()[0]).toMatchObject({
      timeoutSeconds: 0,
      secure: true,
      allowInternetAccess: true,
      metadata: { 'a b': 'c' },
      envVars: { A: '1' },
      network: { allowPublicTraffic: false },
    });
  });

  it.each<[object, unknown]>([
    [{ timeout: -1 }, expect.stringMatching(/^validation error: body\/timeout/)],
    [{ timeout: 1.5 }, expect.stringMatching(/^validation error: /)],
    [{ timeout: 86_401 }, 'Timeout cannot be greater than 24 hours'],
    [{ autoPauseMemory: false }, 'autoPauseMemory=false requires autoPause=true'],
    [
      { autoPauseMemory: false, autoPause: true, autoResume: { enabled: true } },
      'autoPauseMemory=false cannot be combined with autoResume',
    ],
    [{ autoResume: {} }, expect.stringMatching(/^validation error: /)],
    [{ metadata: { a: 1 } }, expect.stringMatching(/^validation error: /)],
    [{ metadata: { 'a\n': 1 } }, expect.stringMatching(/^validation error: /)],
    [{ network: { allowPublicTraffic: false } }, expect.stringContaining('secure')],
    [{ network: { denyOut: ['junk'] } }, 'invalid denied CIDR junk'],
    [{ network: { dnsServers: ['1.1.1.1'] } }, 'network.dnsServers is not supported by this server'],
    [{ volumeMounts: [{ name: 'v', path: 'data' }] }, expect.stringMatching(/^invalid mounts: /)],
    [{ volumeMounts: [{ name: 'v', path: '/a/../b' }] }, expect.stringMatching(/^invalid mounts: /)],
    [
      {
        volumeMounts: [
          { name: 'v', path: '/a' },
          { name: 'w', path: '/a' },
        ],
      },
      expect.stringMatching(/^invalid mounts: /),
    ],
    [{ envVars: { 'A=B': 'c' } }, expect.stringContaining('environment variable')],
    [{ envVars: { A: '\0' } }, expect.stringContaining('NUL')],
    [{ volumeMounts: [{ name: 'v', path: '/v' }] }, 'volumeMounts is not supported by this server yet'],
    [{ iam: { tokens: { a: { audience: 'b' } } } }, 'iam is not supported by this server yet'],
  ])('refuses %j', async (change, message) => {
    expect(await call('POST', '/sandboxes', { templateID: 'base', ...change })).toMatchObject(failure(400, message));
    expect(sandboxes.calls).toEqual([]);
  });
});

describe('one sandbox', () => {
  it('is read with all that is set and nothing that is not', async () => {
    expect((await call('GET', '/sandboxes/i0000000000000000000a')).body).toEqual({
      templateID: 'template',
      sandboxID: 'i0000000000000000000a',
      clientID: '6532622b',
      startedAt: '2026-01-01T00:00:00.000Z',
      endAt: '2026-01-01T00:05:00.000Z',
      cpuCount: 2,
      memoryMB: 1024,
      diskSizeMB: 10240,
      state: 'running',
      envdVersion: '0.6.13',
      alias: 'base',
      envdAccessToken: 'envd-token',
      allowInternetAccess: null,
      domain: null,
      metadata: {},
      lifecycle: { autoResume: false, onTimeout: 'kill' },
      volumeMounts: [],
    });
    sandboxes.row = rowOf({
      state: 'pausing',
      autoPause: true,
      autoResume: true,
      metadata: { a: 'b' },
      allowInternetAccess: false,
      network: {
        allowPublicTraffic: false,
        allowOut: ['a.com'],
        egressProxy: { address: 'p:1', username: 'u', password: 'secret' },
        rules: { 'a.com': [{ transform: { headers: { X: 'y' } } }] },
        httpsPorts: [8443],
      },
      volumeMounts: [{ name: 'v', path: '/v' }],
    });
    expect((await call('GET', '/sandboxes/i1-6532622b')).body).toMatchObject({
      state: 'paused',
      metadata: { a: 'b' },
      allowInternetAccess: false,
      lifecycle: { autoResume: true, onTimeout: 'pause' },
      network: {
        allowPublicTraffic: false,
        allowOut: ['a.com'],
        egressProxy: { address: 'p:1', username: 'u' },
        rules: { 'a.com': [{ transform: { headers: { X: 'y' } } }] },
        httpsPorts: [8443],
      },
      volumeMounts: [{ name: 'v', path: '/v' }],
    });
    expect((await call('GET', '/sandboxes/i1')).text).not.toContain('secret');
    expect(sandboxes.calls[1]).toEqual(['get', teamId, 'i1']);
  });

  it('is not found while it starts or dies, and must have an ID', async () => {
    sandboxes.row = rowOf({ state: 'killing' });
    const message = 'Sandbox "i0000000000000000000a" doesn\'t exist or you don\'t have access to it';
    expect(await call('GET', '/sandboxes/i1')).toMatchObject(failure(404, message));
    for (const [method, url, body] of [
      ['GET', '/sandboxes/a-b-c'],
      ['DELETE', '/sandboxes/A'],
      ['POST', '/sandboxes/a_b/timeout', { timeout: 1 }],
      ['POST', '/v2/sandboxes/a_b/connect'],
    ] as const)
      expect(await call(method, url, body)).toMatchObject(failure(400, 'Invalid sandbox ID'));
  });

  it('is killed, given a deadline and refreshed with 204 and no body', async () => {
    for (const [method, url, body, done] of [
      ['DELETE', '/sandboxes/i1', undefined, ['kill', teamId, 'i1']],
      ['POST', '/sandboxes/i1/timeout', { timeout: 0 }, ['setTimeout', teamId, 'i1', 0]],
      ['POST', '/sandboxes/i1/refreshes', { duration: 100 }, ['refresh', teamId, 'i1', 100]],
      ['POST', '/sandboxes/i1/refreshes', { duration: 1 }, ['refresh', teamId, 'i1', 15]],
      ['POST', '/sandboxes/i1/refreshes', {}, ['refresh', teamId, 'i1', 15]],
      ['POST', '/sandboxes/i1/refreshes', undefined, ['refresh', teamId, 'i1', 15]],
    ] as const) {
      expect(await call(method, url, body)).toMatchObject({ status: 204, text: '' });
      expect(sandboxes.calls.pop()).toEqual(done);
    }
    const typed = { 'x-api-key': KEY, 'content-type': 'application/json' };
    expect(await call('DELETE', '/sandboxes/i1', undefined, typed)).toMatchObject({ status: 204 });
    for (const [url, body] of [
      ['/sandboxes/i1/timeout', {}],
      ['/sandboxes/i1/timeout', undefined],
      ['/sandboxes/i1/timeout', { timeout: -1 }],
      ['/sandboxes/i1/refreshes', { duration: 3601 }],
    ] as const)
      expect(await call('POST', url, body)).toMatchObject(failure(400, expect.stringMatching(/^validation error: /)));
  });

  it('is connected to with 200 when it ran and 201 when it was resumed', async () => {
    expect(await call('POST', '/sandboxes/i1/connect', { timeout: 60 })).toMatchObject({
      status: 200,
      body: { sandboxID: 'i0000000000000000000a' },
    });
    sandboxes.row = rowOf({ state: 'paused' });
    expect(await call('POST', '/v2/sandboxes/i1/connect', { memory: false })).toMatchObject({ status: 201 });
    expect(await call('POST', '/v2/sandboxes/i1/connect')).toMatchObject({ status: 201 });
    expect(sandboxes.calls.map((made) => made[3])).toEqual([
      { timeoutSeconds: 60, memory: true },
      { timeoutSeconds: 300, memory: false },
      { timeoutSeconds: 300, memory: true },
    ]);
    for (const body of [{}, undefined])
      expect(await call('POST', '/sandboxes/i1/connect', body)).toMatchObject({ status: 400 });
    expect(await call('POST', '/sandboxes/i1/connect', { timeout: 90_000 })).toMatchObject(
      failure(400, 'Timeout cannot be greater than 24 hours'),
    );
  });
});

describe('lists of sandboxes', () => {
  const query = () => sandboxes.calls.at(-1)?.[2] as ListQuery;

  it('have the parameters and headers of the protocol', async () => {
    sandboxes.page = {
      rows: [rowOf({ state: 'snapshotting', alias: null })],
      next: { startedAt: Date.UTC(2026, 0, 1), id: 'i1' },
      totalRunning: 7,
    };
    const { status, headers, body } = await call(
      'GET',
      '/v2/sandboxes?metadata=a%252520b%3Dc&state=running%2Cpaused&limit=1&order=desc&startedAfter=2026-01-01T00:00:00.5Z',
    );
    expect(status).toBe(200);
    expect(headers['x-total-running']).toBe('7');
    expect(body).toEqual([
      {
        templateID: 'template',
        sandboxID: 'i0000000000000000000a',
        clientID: '6532622b',
        startedAt: '2026-01-01T00:00:00.000Z',
        endAt: '2026-01-01T00:05:00.000Z',
        cpuCount: 2,
        memoryMB: 1024,
        diskSizeMB: 10240,
        state: 'running',
        envdVersion: '0.6.13',
        metadata: {},
        volumeMounts: [],
      },
    ]);
    expect(query()).toEqual({
      metadata: { 'a b': 'c' },
      states: ['running', 'paused'],
      order: 'desc',
      startedAfter: Date.UTC(2026, 0, 1, 0, 0, 0, 500),
      templateId: null,
      limit: 1,
      cursor: null,
    });
    await call('GET', `/v2/sandboxes?nextToken=${encodeURIComponent(String(headers['x-next-token']))}`);
    expect(query()).toMatchObject({ cursor: { startedAt: Date.UTC(2026, 0, 1), id: 'i1' }, limit: 100 });
    expect(await call('GET', `/v2/sandboxes?order=asc&nextToken=${headers['x-next-token']}`)).toMatchObject(
      failure(400, 'Invalid next token'),
    );
  });

  it('count the running only when they were asked for, and end without a token', async () => {
    const { headers } = await call('GET', '/v2/sandboxes?state=paused');
    expect(headers).not.toHaveProperty('x-total-running');
    expect(headers).not.toHaveProperty('x-next-token');
    await call('GET', '/v2/sandboxes?state=running&state=paused');
    expect(query().states).toEqual(['running', 'paused']);
    await call('GET', '/v2/sandboxes?state=');
    expect(query().states).toEqual(['running', 'paused']);
  });

  it('are narrowed to a template by ID or name', async () => {
    await call('GET', '/v2/sandboxes?template=base');
    expect(query().templateId).toBe(baseId);
    await call('GET', `/v2/sandboxes?template=${baseId}`);
    expect(query().templateId).toBe(baseId);
    sandboxes.calls = [];
    expect(await call('GET', '/v2/sandboxes?template=nope')).toMatchObject({ status: 200, body: [] });
    expect(sandboxes.calls).toEqual([]);
    expect(await call('GET', '/v2/sandboxes?template=base:v1')).toMatchObject({ status: 400, body: { code: 400 } });
  });

  it.each(['limit=0', 'limit=101', 'limit=x', 'state=dead', 'order=up', 'startedAfter=yesterday', 'nextToken=x'])(
    'refuse %s',
    async (parameter) => {
      expect(await call('GET', `/v2/sandboxes?${parameter}`)).toMatchObject({ status: 400, body: { code: 400 } });
    },
  );

  it('of the first generation hold all running sandboxes', async () => {
    const pages: ListPage[] = [
      { rows: [rowOf({ id: 'i1' })], next: { startedAt: 1, id: 'i1' }, totalRunning: 2 },
      { rows: [rowOf({ id: 'i2' })], next: null, totalRunning: 2 },
    ];
    const asked: ListQuery[] = [];
    sandboxes.list = async (_team, wanted) => {
      asked.push({ ...wanted });
      return pages.shift() ?? sandboxes.page;
    };
    const { body } = await call('GET', '/sandboxes?metadata=a%3Db');
    expect(body).toMatchObject([{ sandboxID: 'i1' }, { sandboxID: 'i2' }]);
    expect(asked).toMatchObject([
      { states: ['running'], metadata: { a: 'b' }, cursor: null },
      { cursor: { startedAt: 1, id: 'i1' } },
    ]);
  });
});
