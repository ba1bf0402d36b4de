import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { afterEach, expect, it } from 'vitest';
import { describeOnRuntimes, type TestService } from '../support/service.ts';

const LONG = { timeoutMs: 600_000 };
const STREAMS = 6;
const WORKERS = 2;
const eventually = <T>(seen: () => T) => expect.poll(seen, { timeout: 15_000 });

describeOnRuntimes(
  'a service of several processes',
  (service, runtime) => {
    afterEach(() => service().killAll());

    const create = () => Sandbox.create({ ...service().connection, ...LONG });

    it('serves connections by each of its workers', async () => {
      const workers = workersOf(service());
      expect(workers).toHaveLength(WORKERS);
      const sockets = await Promise.all(Array.from({ length: 4 }, () => open(service().port)));
      try {
        // Handed over when something has been sent at the latest.
        for (const socket of sockets) socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
        await eventually(() => sockets.map((socket) => ownerOf(service(), socket.localPort)).sort()).toEqual(
          [...workers, ...workers].sort(),
        );
      } finally {
        for (const socket of sockets) socket.destroy();
      }
    });

    it('keeps every stream whole across a snapshot and a fork', async () => {
      const sandbox = await create();
      const lines = Array.from({ length: 80 }, (_, index) => String(index + 1));
      const streams = Array.from({ length: STREAMS }, () =>
        sandbox.commands.run('for i in $(seq 80); do echo $i; sleep 0.02; done', { timeoutMs: 0 }),
      );
      await delay(500);
      const snapshot = await sandbox.createSnapshot();
      await delay(300);
      const [copy] = await sandbox.fork();
      for (const { stdout } of await Promise.all(streams)) expect(stdout.trim().split('\n')).toEqual(lines);
      if (!(copy instanceof Sandbox)) throw copy;
      expect((await copy.commands.run('echo copied')).stdout).toBe('copied\n');
      await Sandbox.deleteSnapshot(snapshot.snapshotId, service().connection);
    });

    it.each([
      ['that is still in memory', 0],
      ['from disk', 1_500],
    ])('reaches a sandbox again that was paused, %s', async (_name, waitMs) => {
      const sandbox = await create();
      // By connections of every worker.
      const touch = (of: Sandbox) => Promise.all(Array.from({ length: 6 }, () => of.commands.run('cat /tmp/note')));
      await sandbox.files.write('/tmp/note', 'kept');
      await touch(sandbox);
      const left = sandbox.commands.run('sleep 100', { timeoutMs: 0 }).then(
        () => 'went on',
        () => 'was cut',
      );
      await delay(200);
      await sandbox.pause();
      expect(await left).toBe('was cut');
      await delay(waitMs);
      const again = await Sandbox.connect(sandbox.sandboxId, { ...service().connection, ...LONG });
      for (const { stdout } of await touch(again)) expect(stdout).toBe('kept');
    });

    it('ends the streams of a sandbox that is killed', async () => {
      const sandbox = await create();
      const streams = Array.from({ length: STREAMS }, () =>
        sandbox.commands.run('sleep 100', { timeoutMs: 0 }).then(
          () => 'went on',
          () => 'was cut',
        ),
      );
      await delay(300);
      await sandbox.kill();
      expect(new Set(await Promise.all(streams))).toEqual(new Set(['was cut']));
      const answer = await service().fetchInside(sandbox.sandboxId, '/health');
      expect(answer.status).toBe(502);
    });

    it('lets no two uploads to one path mix', async () => {
      const sandbox = await create();
      const bodies = Array.from({ length: 6 }, (_, index) => String(index).repeat(300_000));
      await Promise.all(bodies.map((body) => sandbox.files.write('/tmp/one', body)));
      expect(bodies).toContain(await sandbox.files.read('/tmp/one'));
    });

    it('goes on when a worker is killed, and replaces it', async () => {
      const sandbox = await create();
      const [first] = workersOf(service());
      process.kill(first as number, 'SIGKILL');
      for (let index = 0; index < 10; index++) {
        // Whoever asks just then is told so by a broken connection, and asks again.
        const asked = () => sandbox.commands.run(`echo ${index}`);
        const { stdout } = await asked().catch(asked).catch(asked);
        expect(stdout).toBe(`${index}\n`);
      }
      await eventually(() => workersOf(service()).length).toBe(WORKERS);
      expect(workersOf(service())).not.toContain(first);
      expect(service().output).toContain('a worker has ended and is replaced');
      // A checkpoint waits for every worker, and not for one that is gone.
      if (runtime === 'gvisor') await sandbox.createSnapshot();
      expect((await sandbox.commands.run('echo still')).stdout).toBe('still\n');
    });

    it('serves by itself while it has no worker', async () => {
      const sandbox = await create();
      for (const pid of workersOf(service())) process.kill(pid, 'SIGKILL');
      await eventually(() => workersOf(service()).length).toBe(0);
      const asked = () => sandbox.commands.run('echo here');
      expect((await asked().catch(asked).catch(asked)).stdout).toBe('here\n');
      await eventually(() => workersOf(service()).length).toBe(WORKERS);
    });

    it('leaves no worker when it is killed or stopped', async () => {
      const sandbox = await create();
      const before = workersOf(service());
      await service().kill9();
      await eventually(() => before.filter(isAlive)).toEqual([]);
      await service().start();
      expect((await sandbox.commands.run('echo back')).stdout).toBe('back\n');
      const after = workersOf(service());
      await service().stop();
      expect(after.filter(isAlive)).toEqual([]);
      await service().start();
    });
  },
  { env: { SANDBAR_WORKERS: String(WORKERS), SANDBAR_PAUSE_HOLD_SECONDS: '1' } },
);

/** Ids of the service's worker processes. */
function workersOf(service: TestService): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => isWorkerOf(service.pid, pid));
}

function isWorkerOf(parent: number, pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state, parentPid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const isOurs = Number(parentPid) === parent && state !== 'Z';
    return isOurs && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('workers/worker.ts');
  } catch {
    return false;
  }
}

function isAlive(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.[0] !== 'Z';
  } catch {
    return false;
  }
}

function open(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => resolve(socket));
    socket.on('error', reject);
  });
}

/** The process that has the service's end of a connection; undefined while none has. */
function ownerOf(service: TestService, clientPort: number | undefined): number | undefined {
  const hex = (port: number | undefined) => (port ?? 0).toString(16).toUpperCase().padStart(4, '0');
  const line = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((text) => text.trim().split(/\s+/))
    .find(([, local, remote]) => local?.endsWith(`:${hex(service.port)}`) && remote?.endsWith(`:${hex(clientPort)}`));
  const link = `socket:[${line?.[9]}]`;
  return [service.pid, ...workersOf(service)].find((pid) =>
    readdirSync(`/proc/${pid}/fd`).some((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`) === link;
      } catch {
        return false;
      }
    }),
  );
}
