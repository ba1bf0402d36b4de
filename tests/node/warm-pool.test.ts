import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findHierarchies } from '../../src/node/cgroup.ts';
import { Layout } from '../../src/node/layout.ts';
import { RUNTIMES, runInside, sandboxRequest, startTestNode, type TestNode } from '../support/node.ts';

describe.each(RUNTIMES)('warm pool on %s', (runtime) => {
  let test: TestNode;

  beforeAll(async () => {
    test = await startTestNode({ warmPool: 2 });
  });

  afterAll(async () => {
    await test?.dispose();
  });

  const places = () => readdirSync(path.join(test.stateDir, 'sandboxes')).length;
  /** Whether it has only what others leave of the processors. */
  const inBackground = (sandboxId: string) => {
    const mount = findHierarchies(readFileSync('/proc/self/mounts', 'utf8')).mounts.get('cpu') ?? '';
    const group = path.join(mount, `sandbar-${new Layout(test.stateDir).scope}`, sandboxId);
    return readFileSync(path.join(group, 'cpu.idle'), 'utf8').trim() === '1';
  };
  const kindOf = (request: ReturnType<typeof sandboxRequest>) => {
    const { sandboxId: _id, guest: _guest, ...kind } = request;
    return kind;
  };

  it('boots ahead what is expected, and shows it to nobody', async () => {
    test.node.expect(kindOf(sandboxRequest(runtime)));
    await expect.poll(places, { timeout: 10_000 }).toBe(1);
    expect(test.node.list().size).toBe(0);
  });

  it('hands a booted one over under its own id, set up for its new owner, and boots others in its place', async () => {
    const request = sandboxRequest(runtime);
    let reserved: string | undefined;
    await expect
      .poll(async () => {
        reserved = await test.node.reserve(kindOf(request));
        return reserved;
      })
      .toBeDefined();
    const sandboxId = reserved as string;
    expect(inBackground(sandboxId)).toBe(true);
    const guest = { env: { COLOUR: 'green' }, defaultUser: 'user', defaultWorkdir: '/home/user' };
    expect(await test.node.create({ ...request, sandboxId, guest })).toBe(true);
    expect(test.node.list().get(sandboxId)).toBe('running');
    expect(inBackground(sandboxId)).toBe(false);
    const { output } = await runInside(test.node.agent(sandboxId), 'id -un; pwd; echo $COLOUR');
    expect(output).toBe('user\n/home/user\ngreen\n');
    // The demand was two within the window, and two is the most.
    await expect.poll(places, { timeout: 10_000 }).toBe(3);
    await test.node.destroy(sandboxId);
  });

  it('does not outlive the service, while what was handed over does', async () => {
    const request = sandboxRequest(runtime);
    await test.node.create(request);
    await expect.poll(places, { timeout: 10_000 }).toBeGreaterThan(1);
    const node = await test.restart();
    expect([...node.list().keys()]).toEqual([request.sandboxId]);
    expect(places()).toBe(1);
    await node.destroy(request.sandboxId);
  });

  it('gives nothing of another kind', async () => {
    const request = sandboxRequest(runtime, { memoryMb: 384 });
    expect(await test.node.reserve(kindOf(request))).toBeUndefined();
  });
});
