import { describe, expect, it } from 'vitest';
import { call, failure, rowOf, sandboxes, teamId, templates } from '../../tests/support/api.ts';
import { SandbarError } from '../core/errors.ts';

const ID = 'i0000000000000000000a';

describe('pause', () => {
  it('keeps memory unless told otherwise, with or without a body', async () => {
    expect(await call('POST', `/sandboxes/${ID}/pause`)).toMatchObject({ status: 204, text: '' });
    expect((await call('POST', `/sandboxes/${ID}/pause`, {})).status).toBe(204);
    expect((await call('POST', `/sandboxes/${ID}/pause`, { memory: false, requireHealthyGuest: true })).status).toBe(
      204,
    );
    expect(sandboxes.calls).toEqual([
      ['pause', teamId, ID, { memory: true, requireAgent: false }],
      ['pause', teamId, ID, { memory: true, requireAgent: false }],
      ['pause', teamId, ID, { memory: false, requireAgent: true }],
    ]);
  });

  it('says in the detail what it saved, once it stands still', async () => {
    const shown = async () => (await call('GET', `/sandboxes/${ID}`)).body;
    sandboxes.row = rowOf({ state: 'paused' });
    expect(await shown()).toMatchObject({ state: 'paused', pauseMode: 'full' });
    sandboxes.row = rowOf({ state: 'paused', memoryKept: false });
    expect(await shown()).toMatchObject({ pauseMode: 'filesystem' });
    sandboxes.row = rowOf({ state: 'pausing' });
    expect(await shown()).toMatchObject({ state: 'paused' });
    expect(await shown()).not.toHaveProperty('pauseMode');
  });
});

describe('resume', () => {
  it('lasts fifteen seconds where nothing is said, and changes only what is named', async () => {
    expect(await call('POST', `/sandboxes/${ID}/resume`)).toMatchObject({ status: 201, body: { sandboxID: ID } });
    await call('POST', `/sandboxes/${ID}/resume`, { timeout: 60, autoPause: false, memory: false });
    expect(sandboxes.calls).toEqual([
      ['resume', teamId, ID, { timeoutSeconds: 15, memory: true }],
      ['resume', teamId, ID, { timeoutSeconds: 60, memory: false, autoPause: false }],
    ]);
  });

  it.each([0, -1])('refuses a timeout of %i', async (timeout) => {
    expect(await call('POST', `/sandboxes/${ID}/resume`, { timeout })).toMatchObject(
      failure(400, 'Timeout must be greater than 0'),
    );
  });

  it('refuses a timeout beyond the longest life', async () => {
    expect(await call('POST', `/sandboxes/${ID}/resume`, { timeout: 86_401 })).toMatchObject(
      failure(400, 'Timeout cannot be greater than 24 hours'),
    );
  });
});

describe('fork', () => {
  it('answers with a result for each copy, each with its own success or failure', async () => {
    const asked: unknown[] = [];
    sandboxes.fork = async (...all) => {
      asked.push(all);
      return [{ row: rowOf({ id: 'ifork' }) }, { error: new SandbarError('rate_limited', 'too many') }];
    };
    const { status, body } = await call('POST', `/sandboxes/${ID}/fork`, { count: 2 });
    expect(status).toBe(201);
    expect(asked).toEqual([[teamId, ID, { timeoutSeconds: 15, count: 2 }]]);
    expect(body).toMatchObject([{ sandbox: { sandboxID: 'ifork' } }, { error: { code: 429, message: 'too many' } }]);
    expect((body as object[])[0]).not.toHaveProperty('error');
    expect((body as object[])[1]).not.toHaveProperty('sandbox');
  });
});

describe('snapshots', () => {
  it('are taken only with a body, and named by their template where they have no name', async () => {
    const base = await templates.find('base', { id: teamId, slug: 'default' });
    const { build } = await templates.resolve('base', { id: teamId, slug: 'default' });
    sandboxes.row = rowOf({ teamId, templateId: base?.id ?? '', buildId: build.id });
    expect((await call('POST', `/sandboxes/${ID}/snapshots`)).status).toBe(400);
    const taken = await call('POST', `/sandboxes/${ID}/snapshots`, {});
    expect(taken).toMatchObject({
      status: 201,
      body: { snapshotID: expect.stringMatching(/^[a-z0-9]{20}:default$/), names: [] },
    });
    const { snapshotID } = taken.body as { snapshotID: string };
    const named = await call('POST', `/sandboxes/${ID}/snapshots`, { name: 'Mine:V1' });
    expect(named.body).toEqual({ snapshotID: 'default/mine:v1', names: ['default/mine'] });
    expect((await call('GET', `/snapshots?sandboxID=${ID}`)).body).toEqual([named.body, taken.body]);
    expect((await call('GET', '/snapshots?name=mine')).body).toEqual([named.body]);
    const { headers } = await call('GET', '/snapshots?limit=1');
    expect((await call('GET', `/snapshots?limit=1&nextToken=${headers['x-next-token']}`)).body).toEqual([taken.body]);
    expect(await call('GET', '/snapshots?nextToken=x')).toMatchObject(failure(400, 'Invalid next token'));
    expect((await call('GET', '/snapshots?limit=0')).status).toBe(400);
    expect((await call('DELETE', `/templates/${encodeURIComponent('default/mine:v1')}`)).status).toBe(204);
    expect((await call('DELETE', `/templates/${encodeURIComponent('default/mine:v1')}`)).status).toBe(404);
    expect((await call('DELETE', `/templates/${encodeURIComponent(snapshotID)}`)).status).toBe(204);
    // What belongs to everyone is nobody's to delete.
    expect((await call('DELETE', '/templates/base')).status).toBe(403);
  });
});
