import { describe, expect, it } from 'vitest';
import { call, failure, teamId, token } from '../../tests/support/api.ts';

describe('teams and keys', () => {
  const bearer = () => ({ authorization: `Bearer ${token}` });

  it('shows a user their teams, each with a key that works', async () => {
    const { status, body } = await call('GET', '/teams', undefined, bearer());
    expect({ status, body }).toEqual({
      status: 200,
      body: [{ teamID: teamId, name: 'default', apiKey: expect.stringMatching(/^e2b_[0-9a-f]{40}$/), isDefault: true }],
    });
    const [{ apiKey }] = body as [{ apiKey: string }];
    expect(await call('GET', '/v2/sandboxes', undefined, { 'x-api-key': apiKey })).toMatchObject({ status: 200 });
    expect(await call('GET', '/teams')).toMatchObject(failure(401, 'authorization header is missing'));
  });

  it('makes, lists, renames and revokes keys', async () => {
    const made = await call('POST', '/api-keys', { name: 'ci' }, bearer());
    expect(made).toMatchObject({
      status: 201,
      body: {
        name: 'ci',
        key: expect.stringMatching(/^e2b_/),
        mask: { prefix: 'e2b_', valueLength: 40 },
        createdBy: { email: expect.any(String) },
        lastUsed: null,
      },
    });
    const { id, key } = made.body as { id: string; key: string };
    const renamed = await call('PATCH', `/api-keys/${id}`, { name: 'build' }, bearer());
    expect(renamed).toMatchObject({ status: 202, text: '', headers: { 'content-length': '0' } });
    const { body } = await call('GET', '/api-keys', undefined, bearer());
    const listed = (body as { id: string }[]).find((other) => other.id === id);
    expect(listed).toMatchObject({ name: 'build' });
    expect(listed).not.toHaveProperty('key');
    expect(await call('GET', '/v2/sandboxes', undefined, { 'x-api-key': key })).toMatchObject({ status: 200 });
    expect(await call('DELETE', `/api-keys/${id}`, undefined, bearer())).toMatchObject({ status: 204, text: '' });
    expect(await call('GET', '/v2/sandboxes', undefined, { 'x-api-key': key })).toMatchObject({ status: 401 });
    expect(await call('DELETE', `/api-keys/${id}`, undefined, bearer())).toMatchObject({ status: 404 });
    expect(await call('POST', '/api-keys', { name: '' }, bearer())).toMatchObject({ status: 400 });
  });
});
