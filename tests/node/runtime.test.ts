import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { NodeExit } from '../../src/node/node.ts';
import type { ReliefEvent } from '../../src/node/relief.ts';
import { countLeftovers, settledLeftovers } from '../support/leftovers.ts';
import { RUNTIMES, runInside, sandboxRequest, startTestNode, type TestNode } from '../support/node.ts';

/** The contract that every runtime keeps, proved on real sandboxes. */
describe.each(RUNTIMES)('runtime %s', (runtime) => {
  let test: TestNode;

  beforeAll(async () => {
    test = await startTestNode();
  });

  afterAll(async () => {
    await test?.dispose();
  });

  async function boot(change = {}) {
    const request = sandboxRequest(runtime, change);
    await test.node.create(request);
    return { id: request.sandboxId, agent: test.node.agent(request.sandboxId) };
  }

  it('boots, runs a command as its user, and leaves nothing behind when destroyed', async () => {
    const before = await settledLeftovers(test.stateDir);
    const { id, agent } = await boot();
    const { output, exitCode } = await runInside(agent, 'id -un; pwd; python3 -c "print(6*7)"; sudo id -u');
    expect(output).toBe('user\n/home/user\n42\n0\n');
    expect(exitCode).toBe(0);
    await test.node.destroy(id);
    await expect.poll(() => countLeftovers(test.stateDir), { timeout: 5000 }).toEqual(before);
  });

  it('shows the limits inside', async () => {
    const { id, agent } = await boot({ cpuCount: 1, memoryMb: 300, diskSizeMb: 700 });
    const { output } = await runInside(
      agent,
      "nproc; awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo; df -BM --output=size / | tail -1 | tr -dc 0-9",
    );
    const [cpus, memory, disk] = output.trim().split('\n').map(Number);
    // gVisor gives a sandbox no fewer than two processors to see; the quota holds all the same.
    expect(cpus).toBe(runtime === 'gvisor' ? Math.max(1, cpus ?? 0) : 1);
    expect(memory).toBe(300);
    expect(disk).toBeGreaterThan(600);
    expect(disk).toBeLessThanOrEqual(700);
    await test.node.destroy(id);
  });

  it('stands still while paused, and goes on with its memory', async () => {
    const { id, agent } = await boot();
    await runInside(
      agent,
      "nohup bash -c 'n=0; while :; do n=$((n+1)); echo $n >> /tmp/count; sleep 0.02; done' > /dev/null 2>&1 &",
    );
    await delay(300);
    await test.node.pause(id, { memory: true });
    expect(test.node.list().get(id)).toBe('paused');
    await delay(300);
    const { guest } = sandboxRequest(runtime);
    expect(await test.node.resume(id, { memory: true, guest })).toEqual({ memory: true, detail: '' });
    const last = async () => Number((await runInside(agent, 'tail -n 1 /tmp/count')).output);
    const atThaw = await last();
    expect(atThaw).toBeGreaterThan(2);
    await expect.poll(last, { timeout: 5000 }).toBeGreaterThan(atThaw + 4);
    await test.node.destroy(id);
  });

  it('refuses to write beyond its disk, and goes on', async () => {
    const { id, agent } = await boot({ diskSizeMb: 128 });
    const { output, exitCode } = await runInside(
      agent,
      'dd if=/dev/zero of=/home/user/big bs=1M count=400 2>&1; rm -f /home/user/big',
    );
    expect(output).toMatch(/No space left on device/);
    expect(exitCode).toBe(0);
    expect((await runInside(agent, 'echo alive > /home/user/f && cat /home/user/f')).output).toBe('alive\n');
    await test.node.destroy(id);
  });

  it('kills the process that takes all memory, not the sandbox', async () => {
    const reliefs: ReliefEvent[] = [];
    const listen = (event: ReliefEvent) => reliefs.push(event);
    test.node.on('relief', listen);
    const { id, agent } = await boot({ memoryMb: 256 });
    const hog = await runInside(agent, 'python3 -c "b=[bytearray(8<<20) for _ in range(200)]; print(\'survived\')"');
    expect(hog.output).not.toContain('survived');
    expect((await runInside(agent, 'echo alive')).output).toBe('alive\n');
    // The kernel does it for a container, the service for gVisor, which says so.
    if (runtime === 'gvisor')
      expect(reliefs.filter((event) => event.sandboxId === id).map((event) => event.kind)).toContain('memory');
    test.node.off('relief', listen);
    await test.node.destroy(id);
  });

  it('outlives a fork bomb', async () => {
    const { id, agent } = await boot({ pidsMax: 128 });
    void runInside(agent, 'bomb() { bomb | bomb & }; bomb; sleep 30').catch(() => undefined);
    await delay(2000);
    await agent.stat({ user: 'root', path: '/' });
    await expect
      .poll(() => runInside(agent, 'echo alive').then((result) => result.output, String), {
        timeout: 30_000,
        interval: 500,
      })
      .toBe('alive\n');
    await test.node.destroy(id);
  });

  it('counts what is used', async () => {
    const { id, agent } = await boot({ memoryMb: 256, diskSizeMb: 512 });
    await runInside(
      agent,
      'dd if=/dev/urandom of=/home/user/f bs=1M count=50 2>/dev/null; python3 -c "for i in range(3000000): pass"',
    );
    const usage = await test.node.usage(id);
    expect(usage.cpuUsec).toBeGreaterThan(10_000);
    expect(usage.memoryUsedBytes).toBeGreaterThan(1_000_000);
    expect(usage.memoryTotalBytes).toBe(256 * 1024 * 1024);
    expect(usage.diskUsedBytes).toBeGreaterThan(45_000_000);
    expect(usage.diskTotalBytes).toBeLessThanOrEqual(512 * 1024 * 1024);
    await test.node.destroy(id);
  });

  it('says so when a sandbox ends by itself, and clears up', async () => {
    const before = await settledLeftovers(test.stateDir);
    const { id, agent } = await boot();
    const ended = new Promise<NodeExit>((resolve) => test.node.once('exit', resolve));
    const lifetime = test.node.lifetime(id);
    process.kill(test.node.record(id).pid, 'SIGKILL');
    const exit = await ended;
    expect(exit).toMatchObject({ sandboxId: id, reason: 'crash' });
    expect(lifetime.aborted).toBe(true);
    await expect(agent.ping()).rejects.toThrow();
    await expect.poll(() => countLeftovers(test.stateDir), { timeout: 5000 }).toEqual(before);
  });

  it('is found again after a restart of the service', async () => {
    const { id, agent } = await boot();
    await runInside(agent, 'echo kept > /home/user/f');
    const node = await test.restart();
    expect(node.list().get(id)).toBe('running');
    expect((await runInside(node.agent(id), 'cat /home/user/f')).output).toBe('kept\n');
    await node.destroy(id);
  });
});
