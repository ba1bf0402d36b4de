import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { KeyedQueue } from './keyed-queue.ts';

describe('KeyedQueue', () => {
  it('runs the tasks of one key one after the other, in order', async () => {
    const queue = new KeyedQueue();
    const events: string[] = [];
    const task = (name: string, ms: number) => async () => {
      events.push(`${name} begins`);
      await sleep(ms);
      events.push(`${name} ends`);
    };
    await Promise.all([queue.run('a', task('first', 20)), queue.run('a', task('second', 1))]);
    expect(events).toEqual(['first begins', 'first ends', 'second begins', 'second ends']);
  });

  it('runs the tasks of different keys side by side', async () => {
    const queue = new KeyedQueue();
    let meet: () => void = () => undefined;
    const met = new Promise<void>((resolve) => {
      meet = resolve;
    });
    await Promise.all([queue.run('a', () => met), queue.run('b', async () => meet())]);
  });

  it('gives the caller the result or the error of its own task alone', async () => {
    const queue = new KeyedQueue();
    const failing = queue.run('a', async () => {
      throw new Error('broken');
    });
    const following = queue.run('a', async () => 42);
    await expect(failing).rejects.toThrow('broken');
    await expect(following).resolves.toBe(42);
  });

  it('tells when it is idle, also when tasks add tasks', async () => {
    const queue = new KeyedQueue();
    let done = 0;
    void queue.run('a', async () => {
      await sleep(5);
      done++;
      void queue.run('b', async () => {
        await sleep(5);
        done++;
      });
    });
    await queue.idle();
    expect(done).toBe(2);
  });
});
