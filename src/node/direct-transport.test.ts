import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { describe, expect, it } from 'vitest';
import { NodeService } from '../../proto/gen/node_pb.js';
import { type CallContext, directTransport } from './direct-transport.ts';

const clientOf = (handlers: object) => createClient(NodeService, directTransport(handlers));

describe('a service of the same process', () => {
  it('gets whole messages and gives whole messages', async () => {
    const client = clientOf({
      resumeSandbox: (request: { sandboxId: string; memory: boolean }) => ({ memory: !request.memory }),
    });
    const answer = await client.resumeSandbox({ sandboxId: 'a' });
    expect(answer).toMatchObject({ $typeName: 'sandbar.node.v1.ResumeSandboxResponse', memory: true, detail: '' });
  });

  it('is told when the caller leaves', async () => {
    const caller = new AbortController();
    const client = clientOf({
      createSandbox: (_request: unknown, { signal }: CallContext) =>
        new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    });
    const call = client.createSandbox({ sandboxId: 'a' }, { signal: caller.signal });
    caller.abort(new Error('gone'));
    await expect(call).rejects.toThrow('gone');
  });

  it('passes failures on as they are', async () => {
    const failure = new ConnectError('taken', Code.AlreadyExists, { 'sandbar-error': 'conflict' });
    const client = clientOf({ destroySandbox: () => Promise.reject(failure) });
    await expect(client.destroySandbox({ sandboxId: 'a' })).rejects.toBe(failure);
    await expect(client.pauseSandbox({ sandboxId: 'a' })).rejects.toThrow('pauseSandbox has no handler');
  });

  it('refuses a time limit, which it would not keep', async () => {
    const client = clientOf({ destroySandbox: () => ({}) });
    await expect(client.destroySandbox({ sandboxId: 'a' }, { timeoutMs: 5 })).rejects.toThrow('no time limit');
  });

  it('streams', async () => {
    const client = clientOf({
      async *watch() {
        yield {};
        yield { sandboxId: 'a' };
      },
    });
    const ids: string[] = [];
    for await (const { sandboxId } of client.watch({})) ids.push(sandboxId);
    expect(ids).toEqual(['', 'a']);
  });
});
