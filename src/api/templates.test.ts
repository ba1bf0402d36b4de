import { describe, expect, it } from 'vitest';
import { baseId, call, database, failure, teamId, templates } from '../../tests/support/api.ts';

describe('templates', () => {
  it('are listed with the built-in one', async () => {
    const { body } = await call('GET', '/templates');
    expect(body).toEqual([
      {
        templateID: baseId,
        buildID: expect.stringMatching(/^[0-9a-f-]{36}$/),
        cpuCount: 2,
        memoryMB: 1024,
        diskSizeMB: 10240,
        public: true,
        aliases: ['base'],
        names: ['base'],
        createdAt: '2026-01-01T00:00:00.000Z',
        updatedAt: '2026-01-01T00:00:00.000Z',
        createdBy: { id: expect.any(String), email: expect.any(String) },
        lastSpawnedAt: null,
        spawnCount: 0,
        buildCount: 1,
        envdVersion: '0.6.13',
        buildStatus: 'ready',
      },
    ]);
    expect(await call('GET', `/v2/templates?teamID=${teamId}`)).toMatchObject({ status: 200, body });
    expect(await call('GET', '/templates?teamID=another')).toMatchObject({ status: 403, body: { code: 403 } });
  });

  it('are read with their builds and tags', async () => {
    const { body } = await call('GET', `/templates/${baseId}`);
    expect(body).toMatchObject({
      templateID: baseId,
      names: ['base'],
      builds: [{ status: 'ready', diskSizeMB: 10240 }],
    });
    expect(await call('GET', '/templates/base/tags')).toMatchObject({ status: 200, body: [{ tag: 'default' }] });
    expect(await call('GET', '/templates/nope')).toMatchObject(failure(404, "template 'nope' not found"));
    expect(await call('GET', `/templates/${baseId}?nextToken=x`)).toMatchObject(failure(400, 'Invalid next token'));
  });

  it('are found by name', async () => {
    expect((await call('GET', '/templates/aliases/base')).body).toEqual({ templateID: baseId, public: true });
    expect(await call('GET', '/templates/aliases/default%2Fnope')).toMatchObject({ status: 404, body: { code: 404 } });
    expect(await call('GET', '/templates/aliases/others%2Fapp')).toMatchObject({ status: 400, body: { code: 400 } });
    expect(await call('GET', '/templates/aliases/a%20b')).toMatchObject({ status: 400, body: { code: 400 } });
    expect(await call('GET', '/templates/aliases/base:v9')).toMatchObject({ status: 404 });
    await database.insertInto('teams').values({ id: 't2', name: 'x', slug: 'x', createdAt: 0 }).execute();
    const row = {
      kind: 'template' as const,
      createdAt: 0,
      updatedAt: 0,
      createdBy: null,
      lastSpawnedAt: null,
      spawnCount: 0,
      buildCount: 0,
    };
    await templates.insert({ ...row, id: 'private', teamId: 't2', public: false });
    expect(await call('GET', '/templates/aliases/private')).toMatchObject({ status: 403, body: { code: 403 } });
    expect(await call('GET', '/templates/private')).toMatchObject({ status: 404, body: { code: 404 } });
  });
});
