import { describe, expect, it } from 'vitest';
import { call, failure, sandboxes, teamId } from '../../tests/support/api.ts';
import { SandbarError } from '../core/errors.ts';

const ID = 'i0000000000000000000a';
const url = `/sandboxes/${ID}/network`;

describe('PUT /sandboxes/{sandboxID}/network', () => {
  it('replaces the whole way out', async () => {
    const body = { allowOut: ['Example.com', '8.8.8.8'], denyOut: ['0.0.0.0/0'] };
    expect(await call('PUT', url, body)).toMatchObject({ status: 204 });
    expect(sandboxes.calls).toEqual([
      [
        'setNetwork',
        teamId,
        ID,
        { egress: { allowOut: ['example.com', '8.8.8.8'], denyOut: ['0.0.0.0/0'] }, allowInternetAccess: null },
      ],
    ]);
  });

  it('takes no internet access for everything denied', async () => {
    expect(await call('PUT', url, { allow_internet_access: false, allowOut: ['example.com'] })).toMatchObject({
      status: 204,
    });
    expect(sandboxes.calls).toMatchObject([['setNetwork', teamId, ID, { allowInternetAccess: false }]]);
  });

  it('without a body clears everything', async () => {
    expect(await call('PUT', url, {})).toMatchObject({ status: 204 });
    expect(sandboxes.calls).toEqual([['setNetwork', teamId, ID, { egress: {}, allowInternetAccess: null }]]);
  });

  it.each([
    [{ denyOut: ['example.com'] }, 'invalid denied CIDR example.com'],
    [{ allowOut: ['example.com'] }, expect.stringMatching(/^When specifying allowed domains in allow out/)],
    [{ egressProxy: { address: '127.0.0.1:1080' } }, expect.stringMatching(/^Invalid egress proxy config: /)],
    [{ allowPublicTraffic: false }, 'network.allowPublicTraffic is not supported by this server'],
    [{ allowOut: 'example.com' }, expect.stringMatching(/^validation error/)],
  ])('refuses %j', async (body, message) => {
    expect(await call('PUT', url, body)).toMatchObject(failure(400, message));
    expect(sandboxes.calls).toEqual([]);
  });

  it('passes on that a sandbox is missing or does not run', async () => {
    sandboxes.error = new SandbarError('not_found', 'no such sandbox');
    expect(await call('PUT', url, {})).toMatchObject(failure(404, 'no such sandbox'));
    sandboxes.error = new SandbarError('conflict', 'paused');
    expect(await call('PUT', url, {})).toMatchObject(failure(409, 'paused'));
  });
});
