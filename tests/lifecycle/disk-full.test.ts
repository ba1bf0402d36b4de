import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { TestService } from '../support/service.ts';
import { Workload } from '../support/workload.ts';

const DISK_MB = 3_000;
const MB = 1024 * 1024;
const LONG = { timeoutMs: 3_600_000 };

// The state directory is on a disk of its own, which the test fills.
describe('a full disk', () => {
  let directory: string;
  let mount: string;
  let service: TestService;

  beforeAll(async () => {
    directory = mkdtempSync(path.join(tmpdir(), 'sandbar-small-'));
    mount = path.join(directory, 'mount');
    mkdirSync(mount);
    const image = path.join(directory, 'disk');
    await runCommand('truncate', ['-s', `${DISK_MB}M`, image]);
    await runCommand('mkfs.ext4', ['-q', '-F', '-m', '0', image]);
    await runCommand('mount', ['-o', 'loop', image, mount]);
    const stateDir = path.join(mount, 'state');
    mkdirSync(stateDir);
    service = new TestService({ stateDir, runtime: 'gvisor', env: { SANDBAR_WARM_POOL: '0' } });
    await service.start();
  });

  afterAll(async () => {
    await service?.dispose();
    await runCommand('umount', [mount], { okStatuses: [0, 32] });
    rmSync(directory, { recursive: true, force: true });
  });

  const filler = () => path.join(mount, 'filler');
  const freeBytes = () => {
    const { bavail, bsize } = statfsSync(mount);
    return bavail * bsize;
  };
  const fillTo = (leftMb: number) =>
    runCommand('fallocate', ['-l', String(freeBytes() - leftMb * MB), filler()]).then(() => undefined);
  const free = () => rmSync(filler(), { force: true });

  async function start(): Promise<{ sandbox: Sandbox; workload: Workload }> {
    const sandbox = await Sandbox.create({ ...service.connection, ...LONG });
    const workload = await Workload.start(service, sandbox);
    await workload.step(2);
    return { sandbox, workload };
  }

  function imagesOf(sandbox: Sandbox): string[] {
    const own = readdirSync(path.join(service.stateDir, 'sandboxes', sandbox.sandboxId));
    return [
      ...own.filter((name) => name.startsWith('image')),
      ...readdirSync(path.join(service.stateDir, 'snapshots')),
    ];
  }

  async function pauses(sandbox: Sandbox, workload: Workload): Promise<void> {
    await workload.step();
    expect(await sandbox.pause()).toBe(true);
    await sandbox.connect(LONG);
    await workload.check();
  }

  it('refuses a pause and a snapshot that cannot fit, and says how much is missing', async () => {
    const { sandbox, workload } = await start();
    await fillTo(40);
    const why = /^507: not enough disk space to write the sandbox down: \d+ MB needed, \d+ MB free$/;
    await expect(sandbox.pause()).rejects.toThrow(why);
    await expect(sandbox.createSnapshot()).rejects.toThrow(why);
    expect(imagesOf(sandbox)).toEqual([]);
    expect((await sandbox.getInfo()).state).toBe('running');
    free();
    await workload.check();
    await pauses(sandbox, workload);
    await sandbox.kill();
  });

  it('a pause that fails half way leaves the sandbox running, whole, and no part of an image', async () => {
    const { sandbox, workload } = await start();
    await holdMemory(sandbox);
    const filling = fillWhen(path.join(service.stateDir, 'sandboxes', sandbox.sandboxId, 'image.new'));
    await expect(sandbox.pause()).rejects.toThrow(
      /^507: the sandbox could not be paused and runs on: .*no space left on device$/,
    );
    await filling;
    free();
    expect((await sandbox.getInfo()).state).toBe('running');
    expect(imagesOf(sandbox)).toEqual([]);
    await workload.check();
    const { logs } = (await (await service.fetch(`/v2/sandboxes/${sandbox.sandboxId}/logs?level=error`)).json()) as {
      logs: { message: string }[];
    };
    expect(logs[0]?.message).toMatch(/^pause failed: .*no space left on device$/);
    await pauses(sandbox, workload);
    await sandbox.kill();
  });

  it('a snapshot that fails half way leaves the sandbox running, whole, and no part of an image', async () => {
    const { sandbox, workload } = await start();
    await holdMemory(sandbox);
    const filling = fillWhen(path.join(service.stateDir, 'snapshots'), '.new');
    await expect(sandbox.createSnapshot()).rejects.toThrow(/^507: .*no space left on device$/);
    await filling;
    free();
    expect(imagesOf(sandbox)).toEqual([]);
    await workload.check();
    expect(await Sandbox.listSnapshots(service.connection).nextItems()).toEqual([]);
    await pauses(sandbox, workload);
    await sandbox.kill();
  });

  /** Has it hold memory that does not compress, so that its image is large. */
  async function holdMemory(sandbox: Sandbox): Promise<void> {
    const program = "import os,time; b=os.urandom(300*1024*1024); open('/tmp/held','w'); time.sleep(3600)";
    await sandbox.commands.run(
      `nohup python3 -c "${program}" > /dev/null 2>&1 & while [ ! -e /tmp/held ]; do sleep 0.1; done`,
    );
  }

  /** Fills the disk as soon as an image is being written there. */
  async function fillWhen(where: string, suffix?: string): Promise<void> {
    const begun = () =>
      suffix === undefined ? existsSync(where) : readdirSync(where).some((name) => name.endsWith(suffix));
    while (!begun()) await delay(1);
    await fillTo(20);
  }
});
