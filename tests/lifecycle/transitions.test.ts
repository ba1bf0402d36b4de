import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeOnRuntimes } from '../support/service.ts';

interface Answer {
  status: number;
  body: Record<string, unknown>;
}

const MISSING = 'i00000000000000000000';

// Every row of the table of states: what an operation does to a sandbox in a state, and the words of a refusal.
describeOnRuntimes('transitions', (service) => {
  let id: string;
  let token: string;

  beforeEach(async () => {
    const { status, body } = await call('POST', '/sandboxes', { templateID: 'base', timeout: 600, secure: true });
    expect(status).toBe(201);
    id = String(body['sandboxID']);
    token = String(body['envdAccessToken']);
  });
  afterEach(() => service().killAll());

  async function call(method: string, url: string, body?: object): Promise<Answer> {
    const response = await service().fetch(url, {
      method,
      ...(body !== undefined && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: text === '' ? {} : JSON.parse(text) };
  }

  const post = (verb: string, body?: object, sandbox = id) => call('POST', `/sandboxes/${sandbox}/${verb}`, body);
  const refused = (code: number, message: unknown) => ({ status: code, body: { code, message } });
  const missing = (sandbox = id) => refused(404, `Sandbox "${sandbox}" doesn't exist or you don't have access to it`);
  const mayEnter = async (envdToken: string) =>
    (await service().fetchInside(id, '/envs', { headers: { 'x-access-token': envdToken } })).status;

  it('of a running sandbox', async () => {
    expect(await post('connect', { timeout: 60 })).toMatchObject({
      status: 200,
      body: { sandboxID: id, clientID: '6532622b', envdAccessToken: token, domain: null },
    });
    expect((await call('POST', `/v2/sandboxes/${id}/connect`)).status).toBe(200);
    expect(await post('connect', {})).toMatchObject({ status: 400 });
    expect(await post('connect', { timeout: -1 })).toMatchObject({ status: 400 });
    expect(await post('resume', {})).toMatchObject(refused(409, `Sandbox ${id} is already running`));
    expect(await post('timeout', { timeout: 600 })).toEqual({ status: 204, body: {} });
    expect(await post('timeout', {})).toMatchObject({ status: 400 });
    expect(await post('refreshes', {})).toEqual({ status: 204, body: {} });
    expect(await post('fork', { count: 0 })).toMatchObject({ status: 400 });
    expect(await post('fork', { count: 101 })).toMatchObject({ status: 400 });
    expect(await post('fork', { timeout: 0 })).toMatchObject(refused(400, 'Timeout must be greater than 0'));
    expect(await post('snapshots')).toMatchObject({ status: 400 });
    expect(await post('pause', { memory: 'no' })).toMatchObject({ status: 400 });
    expect((await post('pause')).status).toBe(204);
  });

  it('of a paused sandbox', async () => {
    expect(await post('pause', { memory: true })).toEqual({ status: 204, body: {} });
    expect((await call('GET', `/sandboxes/${id}`)).body).toMatchObject({ state: 'paused', envdAccessToken: token });
    expect(await post('pause', {})).toMatchObject(
      refused(409, `Error pausing sandbox - sandbox '${id}' is already paused`),
    );
    expect(await post('timeout', { timeout: 60 })).toMatchObject(missing());
    expect(await post('refreshes', {})).toMatchObject(missing());
    expect(await call('PUT', `/sandboxes/${id}/network`, {})).toMatchObject(missing());
    expect(await post('snapshots', {})).toMatchObject(missing());
    expect(await post('fork', {})).toMatchObject(
      refused(409, `Sandbox '${id}' is paused and cannot be forked; resume it first`),
    );
    expect(await post('resume', { timeout: 0 })).toMatchObject(refused(400, 'Timeout must be greater than 0'));
    expect((await post('connect', { timeout: 60 })).status).toBe(201);
    await post('pause');
    expect((await call('POST', `/v2/sandboxes/${id}/connect`, { memory: false })).status).toBe(201);
    await post('pause');
    expect((await call('DELETE', `/sandboxes/${id}`)).status).toBe(204);
    expect(await call('GET', `/sandboxes/${id}`)).toMatchObject(missing());
  });

  it('by resume give a fresh token, and the earlier ones stay valid', async () => {
    await post('pause');
    const before = Date.now();
    const { status, body } = await post('resume', { autoPause: true });
    expect(status).toBe(201);
    const fresh = String(body['envdAccessToken']);
    expect(fresh).not.toBe(token);
    expect([await mayEnter(fresh), await mayEnter(token), await mayEnter('x')]).toEqual([200, 200, 401]);
    const { body: detail } = await call('GET', `/sandboxes/${id}`);
    expect(detail).toMatchObject({ envdAccessToken: fresh, lifecycle: { onTimeout: 'pause' } });
    // Fifteen seconds where none are named.
    expect(Date.parse(String(detail['endAt'])) - before).toBeLessThan(25_000);
    await post('pause');
    const again = await post('connect', { timeout: 60 });
    expect(again.body['envdAccessToken']).toBe(fresh);
    expect(await mayEnter(token)).toBe(200);
  });

  it('of what does not exist', async () => {
    for (const [verb, body] of [
      ['pause', {}],
      ['resume', {}],
      ['connect', { timeout: 60 }],
      ['timeout', { timeout: 60 }],
      ['refreshes', {}],
      ['snapshots', {}],
      ['fork', {}],
    ] as const)
      expect(await post(verb, body, MISSING), verb).toMatchObject(missing(MISSING));
    expect(await call('DELETE', `/sandboxes/${MISSING}`)).toMatchObject(missing(MISSING));
    expect(await post('pause', {}, 'a-b-c')).toMatchObject(refused(400, 'Invalid sandbox ID'));
    expect((await post('pause', {}, `${id}-6532622b`)).status).toBe(204);
  });

  it('of many at once end in one state', async () => {
    for (let round = 0; round < 3; round++) {
      const verbs = ['pause', 'connect', 'pause', 'fork', 'connect', 'snapshots'] as const;
      const answers = await Promise.all(
        verbs.map((verb) =>
          verb === 'connect' ? post(verb, { timeout: 600 }) : post(verb, verb === 'snapshots' ? {} : undefined),
        ),
      );
      for (const { status } of answers) expect([200, 201, 204, 404, 409]).toContain(status);
      expect([200, 201]).toContain((await post('connect', { timeout: 600 })).status);
      expect(await mayEnter(token)).toBe(200);
    }
    const kills = await Promise.all([1, 2, 3].map(() => call('DELETE', `/sandboxes/${id}`)));
    expect(kills.map(({ status }) => status).sort()).toEqual([204, 404, 404]);
    for (const { snapshotID } of (await call('GET', '/snapshots')).body as unknown as { snapshotID: string }[])
      await call('DELETE', `/templates/${encodeURIComponent(snapshotID)}`);
  });
});
