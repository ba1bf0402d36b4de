import { Sandbox, Template } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestService, type TestService } from '../support/service.ts';
import { api, buildTemplate } from './support.ts';

/** Names, tags and lists. They do not depend on the runtime. */
describe('templates have names', () => {
  let service: TestService;
  const printing = (text: string) => Template().fromBaseImage().runCmd(`echo ${text} > /home/user/which`);
  const which = async (reference: string) => {
    const sandbox = await Sandbox.create(reference, service.connection);
    const text = await sandbox.files.read('/home/user/which');
    await sandbox.kill();
    return text.trim();
  };

  beforeAll(async () => {
    service = await startTestService({ runtime: 'container' });
  });
  afterAll(async () => {
    await service?.dispose();
  });

  it('in upper and lower case, with a namespace, with tags', async () => {
    const first = await buildTemplate(service, printing('one'), 'Tagged-App');
    expect(first.info.tags).toEqual(['default']);
    const second = await buildTemplate(service, printing('two'), 'default/tagged-app:v2', { tags: ['latest', 'V2'] });
    expect(second.info.tags).toEqual(['v2', 'latest']);
    expect(second.info.templateId).toBe(first.info.templateId);
    expect(await which('tagged-app')).toBe('one');
    expect(await which('default/tagged-app:v2')).toBe('two');
    expect(await which('tagged-app:latest')).toBe('two');
    expect(await which(`${first.info.templateId}:v2`)).toBe('two');
    const tags = await Template.getTags('tagged-app', service.connection);
    expect(tags.map(({ tag }) => tag).sort()).toEqual(['default', 'latest', 'v2']);
    expect(tags.find(({ tag }) => tag === 'v2')?.buildId).toBe(second.info.buildId);
    // A build without a tag moves `default` and nothing else.
    await buildTemplate(service, printing('three'), 'tagged-app');
    expect([await which('tagged-app'), await which('tagged-app:v2')]).toEqual(['three', 'two']);
  });

  it('whose tags are assigned and removed', async () => {
    const assigned = await Template.assignTags('tagged-app:v2', ['production', 'stable'], service.connection);
    expect(assigned.tags).toEqual(['production', 'stable']);
    expect(await which('tagged-app:production')).toBe('two');
    await Template.assignTags('tagged-app', 'production', service.connection);
    expect(await which('tagged-app:production')).toBe('three');
    await Template.removeTags('tagged-app', ['production', 'never-was'], service.connection);
    await expect(Sandbox.create('tagged-app:production', service.connection)).rejects.toThrow(
      /tag 'production' does not exist for template 'tagged-app'/,
    );
    await expect(Template.assignTags('tagged-app:nope', 'x', service.connection)).rejects.toThrow(
      /tag 'nope' does not exist/,
    );
    await expect(Template.assignTags('nope', 'x', service.connection)).rejects.toThrow(/template 'nope' not found/);
    await expect(Template.removeTags('tagged-app', 'default', service.connection)).rejects.toThrow(
      /Cannot delete the 'default' tag/,
    );
    for (const body of [
      { name: 'tagged-app:v2', tags: ['x'] },
      { name: 'tagged-app', tags: [] },
    ])
      expect(await api(service, 'DELETE', '/templates/tags', body)).toMatchObject({ status: 400, body: { code: 400 } });
    expect(await api(service, 'DELETE', '/templates/tags', { name: 'nope', tags: ['x'] })).toMatchObject({
      status: 404,
    });
  });

  it('that exist or do not', async () => {
    const exists = (name: string) => Template.exists(name, service.connection);
    expect(await exists('tagged-app')).toBe(true);
    expect(await exists('default/tagged-app')).toBe(true);
    expect(await exists('base')).toBe(true);
    expect(await exists('never-built')).toBe(false);
    await expect(exists('other-team/app')).rejects.toThrow(/namespace 'other-team' must match your team/);
  });

  it('and are refused where a name is none', async () => {
    const request = (body: object) => api(service, 'POST', '/v3/templates', body);
    for (const body of [
      {},
      { name: '' },
      { name: 'with space' },
      { name: 'a/b/c' },
      { name: 'x'.repeat(129) },
      { name: 'x:' },
      { name: 'x:with space' },
      { name: 'x:123e4567-e89b-12d3-a456-426614174000' },
      { name: 'elsewhere/x' },
      { name: 'x', tags: [''] },
      { name: 'x', cpuCount: 0 },
      { name: 'x', cpuCount: 3 },
      { name: 'x', cpuCount: 64 },
      { name: 'x', memoryMB: 127 },
      { name: 'x', memoryMB: 513 },
      { name: 'x', memoryMB: 100_000_000 },
    ])
      expect(await request(body), JSON.stringify(body)).toMatchObject({ status: 400, body: { code: 400 } });
  });

  it('and answer in every generation of the protocol', async () => {
    const v3 = await api(service, 'POST', '/v3/templates', { name: 'shapes', tags: ['a'], minFreeDiskMb: 20_480 });
    expect(v3).toMatchObject({
      status: 202,
      body: { public: false, names: ['default/shapes'], aliases: ['shapes'], tags: ['a'] },
    });
    const { templateID, buildID } = v3.body as { templateID: string; buildID: string };
    const waiting = await api(service, 'GET', `/templates/${templateID}/builds/${buildID}/status`);
    expect(waiting.body).toEqual({ templateID, buildID, status: 'waiting', logs: [], logEntries: [] });
    const v2 = await api(service, 'POST', '/v2/templates', { alias: 'shapes', cpuCount: 2, memoryMB: 256 });
    expect(v2).toMatchObject({ status: 202, body: { templateID, aliases: ['shapes'], cpuCount: 2, memoryMB: 256 } });
    expect(v2.body).not.toHaveProperty('names');
    const started = await api(service, 'POST', `/v2/templates/${templateID}/builds/${buildID}`, {
      fromTemplate: 'base',
    });
    expect([started.status, started.headers.get('content-length'), started.body]).toEqual([202, '0', undefined]);
    expect(
      await api(service, 'POST', `/v2/templates/${templateID}/builds/${buildID}`, { fromTemplate: 'base' }),
    ).toMatchObject({ status: 400, body: { message: 'build is not in waiting state' } });
    for (const body of [{}, { fromImage: 'a', fromTemplate: 'b' }, { fromImage: '', fromTemplate: '' }]) {
      const next = (v2.body as { buildID: string }).buildID;
      expect(await api(service, 'POST', `/v2/templates/${templateID}/builds/${next}`, body)).toMatchObject({
        status: 400,
      });
    }
    expect(await api(service, 'GET', `/templates/${templateID}/builds/${templateID}/status`)).toMatchObject({
      status: 400,
      body: { message: `Build '${templateID}' not found` },
    });
  });

  it('and are listed, read, published and deleted', async () => {
    const { info } = await buildTemplate(service, printing('x'), 'whole-life', { cpuCount: 2, memoryMB: 1024 });
    await which('whole-life');
    const listed = (await api(service, 'GET', '/templates')).body as { templateID: string }[];
    const shown = listed.find(({ templateID }) => templateID === info.templateId);
    expect(shown).toMatchObject({
      buildID: info.buildId,
      cpuCount: 2,
      memoryMB: 1024,
      diskSizeMB: 10_240,
      public: false,
      aliases: ['whole-life'],
      names: ['default/whole-life'],
      createdBy: { id: expect.stringMatching(/^[0-9a-f-]{36}$/), email: expect.stringContaining('@') },
      lastSpawnedAt: expect.any(String),
      spawnCount: 1,
      buildCount: 1,
      buildStatus: 'ready',
    });
    const paged = await api(service, 'GET', '/v2/templates?limit=1');
    expect((paged.body as unknown[]).length).toBe(1);
    expect(paged.headers.get('x-next-token')).toBeTruthy();
    const read = await api(service, 'GET', `/templates/${info.templateId}`);
    expect(read.body).toMatchObject({
      names: ['default/whole-life'],
      builds: [{ buildID: info.buildId, status: 'ready', finishedAt: expect.any(String) }],
    });
    expect(await api(service, 'PATCH', `/v2/templates/${info.templateId}`, { public: true })).toMatchObject({
      status: 200,
      body: { names: ['default/whole-life'] },
    });
    expect(await api(service, 'PATCH', '/templates/whole-life', { public: false })).toMatchObject({
      status: 200,
      body: {},
    });
    expect(await api(service, 'PATCH', '/v2/templates/base', { public: false })).toMatchObject({ status: 403 });
    const logs = await api(
      service,
      'GET',
      `/templates/${info.templateId}/builds/${info.buildId}/logs?direction=backward&limit=1`,
    );
    expect(logs.body).toMatchObject({ logs: [{ message: expect.stringContaining('Build finished') }] });

    const sandbox = await Sandbox.create('whole-life', service.connection);
    expect(await api(service, 'DELETE', `/templates/${info.templateId}`)).toMatchObject({
      status: 400,
      body: { code: 400 },
    });
    await sandbox.kill();
    expect((await api(service, 'DELETE', `/templates/${info.templateId}`)).status).toBe(204);
    expect((await api(service, 'DELETE', `/templates/${info.templateId}`)).status).toBe(404);
    expect(await Template.exists('whole-life', service.connection)).toBe(false);
  });
});
