import { describe, expect, it } from 'vitest';
import { call, failure, KEY, sandboxes, serveWith, teamId, token } from '../../tests/support/api.ts';
import { SandbarError } from '../core/errors.ts';
import { Log } from '../core/log.ts';

describe('authentication', () => {
  it('refuses a request without credentials, before looking at the rest', async () => {
    for (const [method, url] of [
      ['POST', '/sandboxes'],
      ['GET', '/v2/sandboxes?limit=junk'],
      ['GET', '/sandboxes/-'],
      ['GET', '/templates'],
    ] as const)
      expect(await call(method, url, undefined, {})).toMatchObject(failure(401, 'authorization header is missing'));
  });

  it('refuses an unknown key or token', async () => {
    const message = expect.stringMatching(/^Invalid API key, please visit https:\/\/e2b.dev\/docs\/api-key/);
    expect(await call('GET', '/v2/sandboxes', undefined, { 'X-API-KEY': 'e2b_00' })).toMatchObject(
      failure(401, message),
    );
    const bearer = { authorization: `Bearer sk_e2b_${'0'.repeat(40)}` };
    expect(await call('GET', '/teams', undefined, bearer)).toMatchObject({ status: 401, body: { code: 401 } });
  });

  it('takes an access token for the default team, or the one named', async () => {
    const authorization = `Bearer ${token}`;
    expect(await call('GET', '/v2/sandboxes', undefined, { authorization })).toMatchObject({ status: 200 });
    expect(sandboxes.calls).toMatchObject([['list', teamId, {}]]);
    const own = { authorization, 'x-team-id': teamId };
    expect(await call('GET', '/v2/sandboxes', undefined, own)).toMatchObject({ status: 200 });
    const other = { authorization, 'x-team-id': 'another' };
    expect(await call('GET', '/v2/sandboxes', undefined, other)).toMatchObject({ status: 403 });
  });
});

describe('every answer', () => {
  it('of an unknown route, a bad body and an unexpected failure has code and message', async () => {
    expect(await call('GET', '/nothing')).toMatchObject(failure(404, 'no such endpoint: GET /nothing'));
    expect(await call('GET', '/%zz')).toMatchObject({ status: 400, body: { code: 400 } });
    const headers = { 'x-api-key': KEY, 'content-type': 'application/json' };
    expect(await call('POST', '/sandboxes', '{"a":', headers)).toMatchObject(
      failure(400, expect.stringMatching(/^Error when parsing request: /)),
    );
    expect(
      await call('POST', '/sandboxes', '{"templateID":"base","metadata":{"__proto__":"x"}}', headers),
    ).toMatchObject(failure(400, expect.stringMatching(/^Error when parsing request: /)));
    expect(await call('POST', '/sandboxes', 'a=b', { ...headers, 'content-type': 'text/plain' })).toMatchObject(
      failure(400, expect.stringContaining('Content-Type must be application/json')),
    );
    for (const body of [
      {},
      [],
      { templateID: 5 },
      { templateID: 'base', timeout: '15' },
      { templateID: 'base', secure: null },
    ])
      expect(await call('POST', '/sandboxes', body)).toMatchObject(
        failure(400, expect.stringMatching(/^validation error: /)),
      );
    expect(await call('POST', '/sandboxes', '', headers)).toMatchObject(
      failure(400, expect.stringMatching(/^validation error: /)),
    );
  });

  it('carries the status and code of a known failure and hides what nobody wrote for clients', async () => {
    sandboxes.error = new SandbarError('rate_limited', 'you have reached the maximum number');
    expect(await call('POST', '/sandboxes', { templateID: 'base' })).toMatchObject(
      failure(429, 'you have reached the maximum number'),
    );
    sandboxes.error = new SandbarError('unavailable', 'busy', { errorCode: 'sandbox_capacity_unavailable' });
    expect((await call('POST', '/sandboxes', { templateID: 'base' })).body).toEqual({
      code: 503,
      message: 'busy',
      error_code: 'sandbox_capacity_unavailable',
    });
    const written: string[] = [];
    const log = new Log('error');
    log.error = (message, fields) => written.push(`${message} ${fields?.['error']}`);
    serveWith(log);
    sandboxes.error = new Error('secret detail');
    expect((await call('GET', '/sandboxes/i1')).body).toEqual({
      code: 500,
      message: 'Internal server error',
      error_code: 'internal_server_error',
    });
    expect(written).toEqual(['a request failed secret detail']);
  });

  it('may be read by any page', async () => {
    const response = await call('GET', '/v2/sandboxes', undefined, { 'x-api-key': KEY, origin: 'https://app.example' });
    expect(response.headers['access-control-allow-origin']).toBe('*');
    expect(response.headers['access-control-expose-headers']).toContain('X-Next-Token');
    const refused = await call('GET', '/v2/sandboxes', undefined, { origin: 'https://app.example' });
    expect(refused).toMatchObject({ status: 401, headers: { 'access-control-allow-origin': '*' } });
    const preflight = await call('OPTIONS', '/v2/sandboxes', undefined, {
      origin: 'https://app.example',
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'x-api-key,content-type',
    });
    expect(preflight).toMatchObject({ status: 204, body: undefined });
    expect(preflight.headers['access-control-allow-headers']).toBe('x-api-key,content-type');
    expect(preflight.headers['access-control-allow-methods']).toContain('DELETE');
  });
});

describe('documents', () => {
  it('answers the health check without credentials', async () => {
    expect(await call('GET', '/health', undefined, {})).toMatchObject({ status: 200, text: 'Health check successful' });
  });

  it('describes every route that is served', async () => {
    const { body } = await call('GET', '/openapi.json', undefined, {});
    const document = body as { openapi: string; paths: Record<string, Record<string, { responses: object }>> };
    expect(document.openapi).toBe('3.1.0');
    const described = new Set(
      Object.entries(document.paths).flatMap(([url, methods]) =>
        Object.keys(methods).map((method) => `${method.toUpperCase()} ${url}`),
      ),
    );
    // One of every resource: a route file that is not registered, or is kept out of the document, shows here.
    for (const route of [
      'GET /health',
      'POST /sandboxes',
      'POST /v2/sandboxes',
      'GET /v2/sandboxes',
      'GET /sandboxes/{sandboxID}',
      'POST /sandboxes/{sandboxID}/pause',
      'POST /sandboxes/{sandboxID}/snapshots',
      'POST /sandboxes/{sandboxID}/fork',
      'PUT /sandboxes/{sandboxID}/network',
      'GET /sandboxes/{sandboxID}/logs',
      'GET /sandboxes/{sandboxID}/metrics',
      'GET /snapshots',
      'GET /events/sandboxes',
      'POST /v3/templates',
      'GET /templates',
      'PATCH /v2/templates/{templateID}',
      'DELETE /templates/tags',
      'GET /secrets',
      'GET /teams',
      'GET /api-keys',
    ])
      expect(described).toContain(route);
    expect(Object.keys(document.paths['/sandboxes']?.['post']?.responses ?? {})).toEqual(['201', '4XX', '5XX']);
  });
});
