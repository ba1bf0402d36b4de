import { describe, expect, it } from 'vitest';
import { call, failure } from '../../tests/support/api.ts';

const missing = failure(404, 'Secret not found');
const invalid = failure(400, 'Invalid secrets request');

async function make(name: string, value = 'v'): Promise<Record<string, unknown>> {
  const { status, body } = await call('POST', '/secrets', { name, value });
  expect(status).toBe(201);
  return body as Record<string, unknown>;
}

describe('secrets', () => {
  it('are made, read, changed and deleted, by id or name, without their value', async () => {
    const made = await make('OpenAI-key', 'sk-1');
    expect(made).toEqual({
      secretID: expect.stringMatching(/^sec_[a-z0-9]{20}$/),
      name: 'openai-key',
      currentVersion: 1,
      metadata: {},
      createdAt: expect.any(String),
      updatedAt: made['createdAt'],
    });
    expect((await call('GET', '/secrets/OPENAI-KEY')).body).toEqual(made);
    const changed = await call('POST', `/secrets/${made['secretID']}`, { value: 'sk-2', metadata: { owner: 'me' } });
    expect(changed).toMatchObject({ status: 200, body: { currentVersion: 2, metadata: { owner: 'me' } } });
    expect(await call('POST', '/secrets/openai-key', { value: 'sk-3' })).toMatchObject({
      status: 200,
      body: { currentVersion: 3, metadata: { owner: 'me' } },
    });
    expect(await call('DELETE', '/secrets/openai-key')).toMatchObject({ status: 204 });
    expect(await call('DELETE', '/secrets/openai-key')).toMatchObject(missing);
    expect(await call('GET', `/secrets/${made['secretID']}`)).toMatchObject(missing);
  });

  it('have names of their own', async () => {
    await make('one');
    expect(await call('POST', '/secrets', { name: 'ONE', value: 'v' })).toMatchObject(
      failure(409, 'Secret cannot be modified in its current state'),
    );
    for (const name of ['', 'a b', 'sec_x', 'SEC_x', 'a'.repeat(129), 'é'])
      expect(await call('POST', '/secrets', { name, value: 'v' }), name).toMatchObject(invalid);
    expect(await call('POST', '/secrets', { name: 'x', value: '' })).toMatchObject(invalid);
    const metadata = Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`k${index}`, 'v']));
    expect(await call('POST', '/secrets', { name: 'x', value: 'v', metadata })).toMatchObject(invalid);
    expect(await call('POST', '/secrets', { name: 'x', value: 'v', metadata: { a: 'b'.repeat(1025) } })).toMatchObject(
      invalid,
    );
  });

  it('are listed a page at a time', async () => {
    for (const name of ['a', 'b', 'c']) await make(name);
    const names: unknown[] = [];
    let query = '?limit=2';
    for (let page = 0; page < 3 && query !== ''; page++) {
      const { body, headers } = await call('GET', `/secrets${query}`);
      names.push(...(body as { name: string }[]).map((secret) => secret.name));
      query = headers['x-next-token'] === undefined ? '' : `?limit=2&nextToken=${headers['x-next-token']}`;
    }
    expect(names.sort()).toEqual(expect.arrayContaining(['a', 'b', 'c']));
    expect(await call('GET', '/secrets?nextToken=junk')).toMatchObject(failure(400, 'Invalid next token'));
  });
});
