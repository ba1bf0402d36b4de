import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Sandbox, type SandboxOpts } from 'e2b';
import { afterEach, expect, it } from 'vitest';
import { describeOnRuntimes } from '../support/service.ts';

interface Entry {
  timestamp: string;
  level: string;
  message: string;
  fields: Record<string, string>;
}

describeOnRuntimes('what is known of a sandbox', (service, runtime) => {
  afterEach(() => service().killAll());

  const create = (options: SandboxOpts = {}) =>
    Sandbox.create({ ...service().connection, timeoutMs: 600_000, ...options });
  const read = async <T>(url: string): Promise<T> => {
    const response = await service().fetch(url);
    expect(response.status).toBe(200);
    return (await response.json()) as T;
  };
  const newest = async ({ sandboxId }: Sandbox) =>
    (await read<{ logs: Entry[] }>(`/v2/sandboxes/${sandboxId}/logs?limit=1`)).logs[0];
  const gone = (sandbox: Sandbox) =>
    expect
      .poll(async () => (await service().fetch(`/sandboxes/${sandbox.sandboxId}`)).status, { timeout: 15_000 })
      .toBe(404);

  it('is its log, in both forms', async () => {
    const sandbox = await create();
    await sandbox.pause();
    await sandbox.connect();
    const v1 = await read<{ logs: { timestamp: string; line: string }[]; logEntries: Entry[] }>(
      `/sandboxes/${sandbox.sandboxId}/logs`,
    );
    expect(v1.logEntries.map(({ message }) => message)).toEqual([
      'sandbox created',
      'sandbox paused: its memory is kept',
      'sandbox resumed with its memory',
    ]);
    expect(v1.logs.map(({ timestamp }) => timestamp)).toEqual(v1.logEntries.map(({ timestamp }) => timestamp));
    expect(JSON.parse(v1.logs[1]?.line ?? '')).toMatchObject({
      level: 'info',
      logger: 'sandbar',
      message: 'sandbox paused: its memory is kept',
    });
    const second = Date.parse(v1.logEntries[1]?.timestamp ?? '');
    const from = await read<{ logs: object[] }>(`/sandboxes/${sandbox.sandboxId}/logs?start=${second + 1}`);
    expect(from.logs).toHaveLength(1);
    const v2 = async (query: string) =>
      (await read<{ logs: Entry[] }>(`/v2/sandboxes/${sandbox.sandboxId}/logs?${query}`)).logs.map((e) => e.message);
    expect(await v2('')).toEqual(v1.logEntries.map(({ message }) => message).reverse());
    expect(await v2(`direction=forward&cursor=${second}&limit=1`)).toEqual(['sandbox paused: its memory is kept']);
    expect(await v2(`cursor=${second}`)).toEqual(['sandbox paused: its memory is kept', 'sandbox created']);
    expect(await v2('search=resumed')).toEqual(['sandbox resumed with its memory']);
    expect(await v2('level=warn')).toEqual([]);
    expect((await service().fetch('/sandboxes/i00000000000000000000/logs')).status).toBe(404);
    expect((await service().fetch(`/v2/sandboxes/${sandbox.sandboxId}/logs?limit=1001`)).status).toBe(400);
  });

  it('tells what killed it: a request, or its own end', async () => {
    const asked = await create();
    await asked.kill();
    expect(await newest(asked)).toMatchObject({ level: 'info', fields: { reason: 'user' } });

    const crashed = await create();
    const record = path.join(service().stateDir, 'sandboxes', crashed.sandboxId, 'record.json');
    const { pid } = JSON.parse(readFileSync(record, 'utf8')) as { pid: number };
    process.kill(pid, 'SIGKILL');
    await gone(crashed);
    expect(await newest(crashed)).toMatchObject({ level: 'error', fields: { reason: 'crash' } });
    const [event] = await read<{ type: string; eventData: object }[]>(`/events/sandboxes/${crashed.sandboxId}`);
    expect(event).toMatchObject({ type: 'sandbox.lifecycle.killed', eventData: { reason: 'crash' } });
  });

  it('tells of a process that was killed for want of memory', async () => {
    if (runtime !== 'gvisor') return;
    const sandbox = await create();
    await sandbox.commands
      .run('python3 -c "b=[bytearray(64<<20) for _ in range(40)]"', { timeoutMs: 60_000 })
      .catch(() => undefined);
    expect((await sandbox.commands.run('echo alive')).stdout).toBe('alive\n');
    expect((await newest(sandbox))?.message).toMatch(/^out of memory \(1024 MB\): killed process \d+ \(python3/);
  });

  it('is a list of events, of one sandbox and of all', async () => {
    const sandbox = await create({ metadata: { a: 'b' } });
    await sandbox.setTimeout(300_000);
    await sandbox.pause();
    await sandbox.connect();
    await sandbox.kill();
    const types = (events: { type: string }[]) => events.map(({ type }) => type.replace('sandbox.lifecycle.', ''));
    const own = await read<{ type: string; sandboxExecutionId: string; eventData: object }[]>(
      `/events/sandboxes/${sandbox.sandboxId}?orderAsc=true`,
    );
    expect(types(own)).toEqual(['created', 'updated', 'paused', 'resumed', 'killed']);
    expect(own[0]).toMatchObject({ version: 'v1', eventData: { sandbox_metadata: { a: 'b' } } });
    // A run has an id of its own.
    expect(new Set(own.map(({ sandboxExecutionId }) => sandboxExecutionId)).size).toBe(2);
    const all = await read<{ type: string }[]>('/events/sandboxes?limit=2&offset=1');
    expect(types(all)).toEqual(['resumed', 'paused']);
    expect((await service().fetch('/events/sandboxes?limit=101')).status).toBe(400);
  });

  it('is what it uses', async () => {
    const sandbox = await create();
    const other = await create();
    await sandbox.commands.run('dd if=/dev/urandom of=/home/user/f bs=1M count=30 2>/dev/null');
    await expect
      .poll(async () => (await sandbox.getMetrics()).some(({ diskUsed }) => diskUsed > 30_000_000), { timeout: 20_000 })
      .toBe(true);
    const [sample] = await sandbox.getMetrics();
    expect(sample).toMatchObject({ cpuCount: 2, memTotal: 1024 ** 3 });
    expect(sample?.memUsed).toBeGreaterThan(0);
    const now = Math.floor(Date.now() / 1000);
    expect(await read(`/sandboxes/${sandbox.sandboxId}/metrics?start=${now - 7200}&end=${now - 3600}`)).toEqual([]);
    expect((await service().fetch(`/sandboxes/${sandbox.sandboxId}/metrics?start=2&end=1`)).status).toBe(400);
    expect(await read('/sandboxes/i00000000000000000000/metrics')).toEqual([]);
    const batch = await read<{ sandboxes: Record<string, object> }>(
      `/sandboxes/metrics?sandbox_ids=${sandbox.sandboxId},${other.sandboxId},i00000000000000000000`,
    );
    expect(Object.keys(batch.sandboxes)).toContain(sandbox.sandboxId);
    expect(Object.keys(batch.sandboxes)).not.toContain('i00000000000000000000');
    const inside = await service().fetchInside(sandbox.sandboxId, '/metrics', {
      headers: { 'x-access-token': tokenOf(sandbox) },
    });
    expect(await inside.json()).toMatchObject({ cpu_count: 2, mem_total_mib: 1024 });
    const [{ sandboxTeamId } = { sandboxTeamId: '' }] = await read<{ sandboxTeamId: string }[]>('/events/sandboxes');
    const running = async () =>
      (await read<{ concurrentSandboxes: number }[]>(`/teams/${sandboxTeamId}/metrics`)).at(-1)?.concurrentSandboxes;
    await expect.poll(running, { timeout: 15_000 }).toBe(2);
    const most = await read<{ value: number }>(`/teams/${sandboxTeamId}/metrics/max?metric=concurrent_sandboxes`);
    expect(most.value).toBeGreaterThanOrEqual(2);
    expect((await service().fetch('/teams/00000000-0000-0000-0000-000000000000/metrics')).status).toBe(403);
  });
});

function tokenOf(sandbox: Sandbox): string {
  return (sandbox as unknown as { envdAccessToken: string }).envdAccessToken;
}
