import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  AuthenticationError,
  NotFoundError,
  Sandbox,
  type SandboxInfo,
  type SandboxListOpts,
  SandboxNotFoundError,
} from 'e2b';
import { afterEach, describe, expect, it } from 'vitest';
import { failureOf } from '../support/sdk.ts';
import { describeOnRuntimes } from '../support/service.ts';

const UNKNOWN = 'i0000000000000000000a';

describeOnRuntimes('Sandbox', (service) => {
  const opts = () => service().connection;

  afterEach(() => service().killAll());

  async function listAll(options: SandboxListOpts = {}): Promise<SandboxInfo[]> {
    const found: SandboxInfo[] = [];
    const paginator = Sandbox.list({ ...opts(), ...options });
    while (paginator.hasNext) found.push(...(await paginator.nextItems()));
    return found;
  }

  describe('create', () => {
    it('makes a sandbox from the base template by default', async () => {
      const sandbox = await Sandbox.create(opts());
      expect(sandbox.sandboxId).toMatch(/^[a-z0-9]+$/);
      const info = await sandbox.getInfo();
      expect(info).toMatchObject({ sandboxId: sandbox.sandboxId, name: 'base', state: 'running', metadata: {} });
      expect(info.cpuCount).toBeGreaterThanOrEqual(1);
      expect(info.memoryMB).toBeGreaterThanOrEqual(128);
      expect(info.endAt.getTime() - info.startedAt.getTime()).toBeGreaterThan(290_000);
      expect(Math.abs(info.startedAt.getTime() - Date.now())).toBeLessThan(30_000);
    });

    it('takes a template by name and by id', async () => {
      const byName = await Sandbox.create('base', opts());
      const { templateId } = await byName.getInfo();
      const byId = await Sandbox.create(templateId, opts());
      expect((await byId.getInfo()).templateId).toBe(templateId);
      const error = await failureOf(Sandbox.create('no-such-template', opts()));
      expect(error.message).toMatch(/404|not found/i);
    });

    it('keeps metadata and environment', async () => {
      const metadata = { owner: 'ada', 'odd key': 'ü = & "value"' };
      const sandbox = await Sandbox.create({ ...opts(), metadata, envs: { GREETING: 'hello world' } });
      expect((await sandbox.getInfo()).metadata).toEqual(metadata);
      expect((await sandbox.commands.run('echo $GREETING')).stdout).toBe('hello world\n');
    });

    it('lives as long as it is told', async () => {
      const sandbox = await Sandbox.create({ ...opts(), timeoutMs: 120_000 });
      const { startedAt, endAt } = await sandbox.getInfo();
      expect(endAt.getTime() - startedAt.getTime()).toBeGreaterThanOrEqual(119_000);
      expect(endAt.getTime() - startedAt.getTime()).toBeLessThanOrEqual(121_000);
      await expect(Sandbox.create({ ...opts(), timeoutMs: 1e12 })).rejects.toThrow(
        /Timeout cannot be greater than 24 hours/,
      );
    });

    it('ends when its time is over', async () => {
      const sandbox = await Sandbox.create({ ...opts(), timeoutMs: 3000 });
      expect(await sandbox.isRunning()).toBe(true);
      const command = await sandbox.commands.run('sleep 60', { background: true });
      await expect(command.wait()).rejects.toThrow(/killed or reached its end of life/);
      expect(await sandbox.isRunning()).toBe(false);
      await expect(sandbox.getInfo()).rejects.toThrow(NotFoundError);
      expect(await Sandbox.kill(sandbox.sandboxId, opts())).toBe(false);
    });

    it('refuses a key that is wrong or missing', async () => {
      const wrong = { ...opts(), apiKey: `e2b_${randomBytes(20).toString('hex')}` };
      await expect(Sandbox.create(wrong)).rejects.toThrow(AuthenticationError);
      await expect(Sandbox.list(wrong).nextItems()).rejects.toThrow(AuthenticationError);
    });

    it('makes five at once, each with files and processes of its own', async () => {
      const sandboxes = await Promise.all(Array.from({ length: 5 }, () => Sandbox.create(opts())));
      expect(new Set(sandboxes.map((sandbox) => sandbox.sandboxId)).size).toBe(5);
      await Promise.all(sandboxes.map((sandbox, index) => sandbox.files.write('/tmp/own', String(index))));
      const read = await Promise.all(sandboxes.map((sandbox) => sandbox.files.read('/tmp/own')));
      expect(read).toEqual(['0', '1', '2', '3', '4']);
    });
  });

  describe('connect', () => {
    it('gives another handle on the same sandbox', async () => {
      const sandbox = await Sandbox.create(opts());
      await sandbox.files.write('/home/user/note', 'left here');
      const again = await Sandbox.connect(sandbox.sandboxId, opts());
      expect(again.sandboxId).toBe(sandbox.sandboxId);
      expect(await again.files.read('/home/user/note')).toBe('left here');
      expect((await (await sandbox.connect()).commands.run('echo yes')).stdout).toBe('yes\n');
    });

    it('moves the end later, never earlier', async () => {
      const sandbox = await Sandbox.create({ ...opts(), timeoutMs: 600_000 });
      const { endAt } = await sandbox.getInfo();
      await Sandbox.connect(sandbox.sandboxId, { ...opts(), timeoutMs: 60_000 });
      expect((await sandbox.getInfo()).endAt.getTime()).toBe(endAt.getTime());
      await Sandbox.connect(sandbox.sandboxId, { ...opts(), timeoutMs: 1_200_000 });
      const longer = (await sandbox.getInfo()).endAt.getTime() - Date.now();
      expect(longer).toBeGreaterThan(1_150_000);
      expect(longer).toBeLessThanOrEqual(1_200_000);
    });

    it('fails for one that is not there', async () => {
      await expect(Sandbox.connect(UNKNOWN, opts())).rejects.toThrow(SandboxNotFoundError);
      const sandbox = await Sandbox.create(opts());
      await sandbox.kill();
      await expect(Sandbox.connect(sandbox.sandboxId, opts())).rejects.toThrow(NotFoundError);
    });
  });

  describe('list', () => {
    it('shows what runs, newest first, in pages', async () => {
      const made: string[] = [];
      for (let index = 0; index < 5; index++) made.push((await Sandbox.create(opts())).sandboxId);
      expect((await listAll()).map((info) => info.sandboxId)).toEqual([...made].reverse());
      const paginator = Sandbox.list({ ...opts(), limit: 2 });
      const sizes: number[] = [];
      const seen: string[] = [];
      while (paginator.hasNext) {
        const page = await paginator.nextItems();
        sizes.push(page.length);
        seen.push(...page.map((info) => info.sandboxId));
      }
      expect(sizes).toEqual([2, 2, 1]);
      expect(seen).toEqual([...made].reverse());
      expect((await listAll({ order: 'asc' })).map((info) => info.sandboxId)).toEqual(made);
    });

    it('goes on from a token that was kept', async () => {
      for (let index = 0; index < 3; index++) await Sandbox.create(opts());
      const first = Sandbox.list({ ...opts(), limit: 2 });
      const page = await first.nextItems();
      const second = Sandbox.list({ ...opts(), limit: 2, nextToken: first.nextToken as string });
      const rest = await second.nextItems();
      expect(new Set([...page, ...rest].map((info) => info.sandboxId)).size).toBe(3);
      expect(second.hasNext).toBe(false);
      await expect(Sandbox.list({ ...opts(), nextToken: 'nonsense' }).nextItems()).rejects.toThrow(/next token/i);
    });

    it('filters by metadata, whatever stands in it, by state and by template', async () => {
      const odd = { 'key with space & =': 'value/ü?%20,"x"' };
      const one = await Sandbox.create({ ...opts(), metadata: { job: '1', shared: 'yes' } });
      const two = await Sandbox.create({ ...opts(), metadata: { job: '2', shared: 'yes' } });
      const three = await Sandbox.create({ ...opts(), metadata: odd });
      const ids = async (query: NonNullable<SandboxListOpts['query']>) =>
        (await listAll({ query })).map((info) => info.sandboxId).sort();
      expect(await ids({ metadata: { job: '1' } })).toEqual([one.sandboxId]);
      expect(await ids({ metadata: { shared: 'yes' } })).toEqual([one.sandboxId, two.sandboxId].sort());
      expect(await ids({ metadata: { shared: 'yes', job: '3' } })).toEqual([]);
      expect(await ids({ metadata: odd })).toEqual([three.sandboxId]);
      expect(await ids({ state: ['running'] })).toHaveLength(3);
      expect(await ids({ state: ['paused'] })).toEqual([]);
      expect(await ids({ state: ['running', 'paused'], metadata: { job: '2' } })).toEqual([two.sandboxId]);
      expect(await ids({ template: 'base' })).toHaveLength(3);
      expect(await ids({ template: 'other' })).toEqual([]);
      expect(await ids({ startedAfter: new Date(Date.now() + 60_000) })).toEqual([]);
      expect(await ids({ startedAfter: new Date(Date.now() - 60_000) })).toHaveLength(3);
    });

    it('shows the same of a sandbox as getInfo does', async () => {
      const sandbox = await Sandbox.create({ ...opts(), metadata: { a: 'b' } });
      const [listed] = await listAll();
      const { sandboxId, templateId, name, metadata, startedAt, endAt, state, cpuCount, memoryMB, envdVersion } =
        await sandbox.getInfo();
      expect(listed).toMatchObject({
        ...{ sandboxId, templateId, name, metadata, startedAt, endAt, state, cpuCount, memoryMB, envdVersion },
      });
    });
  });

  describe('setTimeout', () => {
    it('sets the end from now, later or earlier', async () => {
      const sandbox = await Sandbox.create(opts());
      await sandbox.setTimeout(1_000_000);
      const left = async () => (await sandbox.getInfo()).endAt.getTime() - Date.now();
      expect(await left()).toBeGreaterThan(950_000);
      await Sandbox.setTimeout(sandbox.sandboxId, 30_000, opts());
      expect(await left()).toBeLessThanOrEqual(30_000);
      expect(await left()).toBeGreaterThan(20_000);
      await sandbox.setTimeout(1000);
      await expect.poll(() => sandbox.isRunning(), { timeout: 10_000 }).toBe(false);
    });

    it('keeps a sandbox alive past its first end', async () => {
      const sandbox = await Sandbox.create({ ...opts(), timeoutMs: 2000 });
      await sandbox.setTimeout(60_000);
      await sleep(2500);
      expect(await sandbox.isRunning()).toBe(true);
    });

    it('goes no further than a day after the start', async () => {
      const sandbox = await Sandbox.create(opts());
      await sandbox.setTimeout(1e12);
      const { startedAt, endAt } = await sandbox.getInfo();
      expect(endAt.getTime() - startedAt.getTime()).toBe(24 * 3_600_000);
    });

    it('fails for one that is not there', async () => {
      await expect(Sandbox.setTimeout(UNKNOWN, 1000, opts())).rejects.toThrow(SandboxNotFoundError);
    });
  });

  describe('kill and isRunning', () => {
    it('tell whether there was something to kill', async () => {
      const sandbox = await Sandbox.create(opts());
      expect(await sandbox.isRunning()).toBe(true);
      expect(await sandbox.kill()).toBe(true);
      expect(await sandbox.isRunning()).toBe(false);
      expect(await sandbox.kill()).toBe(false);
      expect(await Sandbox.kill(UNKNOWN, opts())).toBe(false);
      expect(await listAll()).toEqual([]);
      await expect(Sandbox.getInfo(sandbox.sandboxId, opts())).rejects.toThrow(SandboxNotFoundError);
    });
  });

  describe('addresses and what is refused', () => {
    it('gives the host of a port', async () => {
      const sandbox = await Sandbox.create(opts());
      expect(sandbox.getHost(3000)).toBe(`3000-${sandbox.sandboxId}.${service().domain}`);
    });

    it('refuses an id that is none', async () => {
      await expect(Sandbox.getInfo('Not-An-Id', opts())).rejects.toThrow();
      await expect(Sandbox.kill('Not-An-Id', opts())).rejects.toThrow();
    });

    it('says what is wrong with options', async () => {
      const network = { allowOut: ['example.com'] };
      await expect(Sandbox.create({ ...opts(), network })).rejects.toThrow(/ALL_TRAFFIC/);
      await expect(Sandbox.create({ ...opts(), network: { denyOut: ['nonsense'] } })).rejects.toThrow(
        /invalid denied CIDR/,
      );
    });
  });
});
