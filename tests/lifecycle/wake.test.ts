import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox, type SandboxOpts } from 'e2b';
import { afterEach, expect, it } from 'vitest';
import { describeOnRuntimes } from '../support/service.ts';

const SERVER = 'python3 -m http.server 8000 --directory /home/user';

describeOnRuntimes('traffic to a paused sandbox', (service) => {
  afterEach(() => service().killAll());

  async function paused(options: SandboxOpts = {}, pause: { keepMemory?: boolean } = {}): Promise<Sandbox> {
    const sandbox = await Sandbox.create({
      ...service().connection,
      timeoutMs: 60_000,
      lifecycle: { onTimeout: 'pause', autoResume: true },
      ...options,
    });
    await sandbox.files.write('/home/user/page', 'hello');
    const server = await sandbox.commands.run(SERVER, { background: true, timeoutMs: 0 });
    void server.wait().catch(() => undefined);
    await expect.poll(() => page(sandbox).then(({ status }) => status), { timeout: 10_000 }).toBe(200);
    await sandbox.pause(pause);
    return sandbox;
  }

  const page = (sandbox: Sandbox, headers: Record<string, string> = {}) =>
    service().fetchInside(sandbox.sandboxId, '/page', { headers }, 8000);

  it('wakes it once, however many ask, and gives it five minutes', async () => {
    const sandbox = await paused();
    const answers = await Promise.all(Array.from({ length: 20 }, () => page(sandbox)));
    expect(await Promise.all(answers.map((answer) => answer.text()))).toEqual(Array(20).fill('hello'));
    const { state, endAt } = await sandbox.getInfo();
    expect(state).toBe('running');
    expect(endAt.getTime() - Date.now()).toBeGreaterThan(290_000);
    const events = (await (
      await service().fetch(`/events/sandboxes/${sandbox.sandboxId}?types=sandbox.lifecycle.resumed`)
    ).json()) as { eventData: object }[];
    expect(events.map(({ eventData }) => eventData)).toEqual([expect.objectContaining({ reason: 'traffic' })]);
  });

  it('wakes it by a call of the SDK that holds its token, and for as long as it was made for', async () => {
    const sandbox = await paused({ timeoutMs: 900_000 });
    expect((await sandbox.commands.run('echo awake')).stdout).toBe('awake\n');
    expect((await sandbox.getInfo()).endAt.getTime() - Date.now()).toBeGreaterThan(880_000);
  });

  it('does not wake it for somebody who may not come in', async () => {
    const sandbox = await paused();
    const refused = await service().fetchInside(sandbox.sandboxId, '/files?path=/home/user/page', {});
    expect(refused.status).toBe(403);
    expect(((await refused.json()) as { message: string }).message).toBe(
      "This sandbox can't be resumed with the credentials provided. Check your access token and try again.",
    );
    expect((await sandbox.getInfo()).state).toBe('paused');
  });

  it('does not wake it for somebody who asks whether it runs, as clients do when a pause cuts their streams', async () => {
    const sandbox = await paused();
    expect(await sandbox.isRunning()).toBe(false);
    await delay(500);
    expect((await sandbox.getInfo()).state).toBe('paused');
  });

  it('does not wake what was not made for it, or has no memory to go on with', async () => {
    const plain = await paused({ lifecycle: { onTimeout: 'pause' } });
    const cold = await paused({}, { keepMemory: false });
    for (const sandbox of [plain, cold]) {
      const answer = await page(sandbox);
      expect(answer.status).toBe(502);
      expect(((await answer.json()) as { message: string }).message).toBe('The sandbox was not found');
      expect(await sandbox.isRunning()).toBe(false);
      expect((await sandbox.getInfo()).state).toBe('paused');
    }
  });
});
