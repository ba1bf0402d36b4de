import { beforeEach, expect, test } from 'vitest';
import { sandboxRow } from '../../tests/support/fake-sandbox.ts';
import { Turns } from '../envd/turns.ts';
import type { Follower } from '../node/contract.ts';
import { ConnectionCounts } from '../proxy/admission.ts';
import { Channel } from './channel.ts';
import type { MainSurface, WorkerSurface } from './contract.ts';
import { Desk } from './desk.ts';

const row = sandboxRow();
const followers = new Set<Follower>();
const admission = new ConnectionCounts();
let said: unknown[][];
let hold: () => Promise<void>;

beforeEach(() => {
  followers.clear();
  said = [];
  hold = async () => undefined;
});

/** A desk, and the worker it is for; `said` is what the worker was told, in order. */
function openDesk() {
  const note =
    (name: string) =>
    (...args: unknown[]) => {
      said.push([name, ...args]);
    };
  const surface: WorkerSurface = {
    start: note('start'),
    know: (id) => note('know')(id),
    hold: async (id) => {
      note('hold')(id);
      await hold();
    },
    reopen: note('reopen'),
    cut: note('cut'),
    end: note('end'),
    stop: async () => undefined,
  };
  const worker: Channel<MainSurface> = new Channel((message) => desk.channel.receive(message), surface);
  const desk = new Desk(
    {
      directory: { lookup: async (id) => (id === row.id ? row : undefined), wake: async () => row },
      sandboxes: {
        follow: (_id, follower) => {
          followers.add(follower);
          return { host: '10.0.0.1', agentPort: 1, secret: '00', held: false };
        },
        settled: async () => undefined,
        unfollow: (follower) => followers.delete(follower),
      },
      usage: async () => ({ cpuUsedPct: 0, memoryTotalBytes: 1, memoryUsedBytes: 1, memoryCacheBytes: 1 }),
      admission,
      turns: new Turns(),
    },
    (message) => worker.receive(message),
    { onReady: () => undefined, onTook: () => undefined, onStuck: () => undefined },
  );
  return { desk, worker };
}

test('a worker learns the way into a sandbox once, before it has the answer', async () => {
  const { worker } = openDesk();
  const find = async () => {
    said.push(['found', (await worker.call('lookup', row.id))?.id]);
  };
  await Promise.all([find(), find()]);
  await find();
  const found = ['found', row.id];
  expect(said).toEqual([['know', row.id], found, found, found]);
});

test('one that it does not know is not introduced', async () => {
  const { worker } = openDesk();
  expect(await worker.call('lookup', 'iother')).toBe(undefined);
  expect(said).toEqual([]);
});

test('after the end of a sandbox it is introduced anew', async () => {
  const { desk, worker } = openDesk();
  await worker.call('lookup', row.id);
  desk.end(row.id, 'paused');
  await worker.call('wake', row.id);
  expect(said).toEqual([
    ['know', row.id],
    ['end', row.id, 'paused'],
    ['know', row.id],
  ]);
});

test('a hold lasts until the worker has let go', async () => {
  const { desk } = openDesk();
  const letGo = Promise.withResolvers<void>();
  hold = () => letGo.promise;
  let held = false;
  const holding = desk.hold(row.id).then(() => {
    held = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(held).toBe(false);
  letGo.resolve();
  await holding;
});

test('the end of a worker ends a hold, its following and all that it held', async () => {
  const { desk, worker } = openDesk();
  await worker.call('lookup', row.id);
  hold = () => new Promise(() => undefined);
  const holding = desk.hold(row.id);
  expect(await worker.call('enter', row.id, 1)).toBeTypeOf('number');
  expect(await worker.call('enter', row.id, 1)).toBe(undefined);
  desk.close();
  await holding;
  expect(followers.size).toBe(0);
  expect(admission.enter(row.id, 1)).toBeTypeOf('function');
});

test('turns are taken among workers', async () => {
  const { worker } = openDesk();
  const first = await worker.call('takeTurn', 'file', 10_000);
  let second: number | undefined;
  const waiting = worker.call('takeTurn', 'file', 10_000).then((number) => {
    second = number;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(second).toBe(undefined);
  worker.tell('endTurn', first);
  await waiting;
  expect(second).toBeTypeOf('number');
});
