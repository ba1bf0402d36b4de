import path from 'node:path';
import { Sandbox } from 'e2b';
import { afterEach, expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { describeOnRuntimes } from '../support/service.ts';

const program = path.resolve(import.meta.dirname, '../../node_modules/@e2b/cli/dist/index.js');

describeOnRuntimes('the lifecycle through the command line', (service) => {
  afterEach(() => service().killAll());

  async function e2b(...words: string[]): Promise<string> {
    const { stdout, stderr } = await runCommand(process.execPath, [program, 'sandbox', ...words], {
      env: { PATH: process.env['PATH'], HOME: service().stateDir, ...service().env },
      timeoutMs: 60_000,
    });
    return `${stdout}${stderr}`;
  }

  const create = (options: object = {}) => Sandbox.create({ ...service().connection, timeoutMs: 600_000, ...options });

  it('lists, pauses, resumes and kills', async () => {
    const { sandboxId } = await create({ metadata: { made: 'here' } });
    const ids = async (...words: string[]) =>
      (JSON.parse(await e2b('list', '--format', 'json', ...words)) as { sandboxId: string }[]).map(
        (sandbox) => sandbox.sandboxId,
      );
    expect(await ids('--metadata', 'made=here')).toEqual([sandboxId]);
    expect(await e2b('pause', sandboxId)).toContain(`Sandbox ${sandboxId} has been paused`);
    expect(await ids()).toEqual([]);
    expect(await ids('--state', 'paused')).toEqual([sandboxId]);
    expect(await e2b('info', sandboxId)).toContain('paused');
    expect(await e2b('resume', sandboxId)).toContain(`Sandbox ${sandboxId} has been resumed`);
    expect(await e2b('exec', sandboxId, 'echo', 'from inside')).toContain('from inside');
    expect(await e2b('kill', sandboxId)).toContain(`Sandbox ${sandboxId} has been killed`);
    expect(await ids('--state', 'running,paused')).toEqual([]);
  });

  it('shows the log, also of a sandbox that is gone', async () => {
    const sandbox = await create();
    await sandbox.pause({ keepMemory: false });
    await sandbox.connect({ timeoutMs: 600_000 });
    const following = e2b('logs', sandbox.sandboxId, '--follow');
    await new Promise((resolve) => setTimeout(resolve, 2000));
    await sandbox.kill();
    const followed = await following;
    const shown = await e2b('logs', sandbox.sandboxId);
    for (const text of [followed, shown]) {
      expect(text).toContain('sandbox created');
      expect(text).toContain('sandbox paused: only its files are kept');
      expect(text).toContain('sandbox resumed with its files alone');
    }
    expect(shown).toContain('sandbox killed on request');
  });

  it('shows metrics', async () => {
    const { sandboxId } = await create();
    await expect.poll(() => e2b('metrics', sandboxId), { timeout: 20_000, interval: 1000 }).toMatch(/cpu/i);
  });

  it('takes, lists and deletes snapshots', async () => {
    const { sandboxId } = await create();
    expect(await e2b('snapshot', 'create', sandboxId, '--name', 'by-hand')).toContain('default/by-hand:default');
    expect(await e2b('snapshot', 'list')).toContain('default/by-hand:default');
    expect(await e2b('snapshot', 'delete', 'default/by-hand:default')).toMatch(/deleted/i);
    expect(await e2b('snapshot', 'list')).not.toContain('by-hand');
  });
});
