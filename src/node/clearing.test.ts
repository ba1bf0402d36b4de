import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Log } from '../core/log.ts';
import { Clearing } from './clearing.ts';

const log = new Log('error');

describe('clearing away', () => {
  it('is done one after the other, each sandbox once', async () => {
    const clearing = new Clearing(() => false, log);
    const steps: string[] = [];
    const work = (name: string) => async () => {
      steps.push(`${name} begins`);
      await delay(1);
      steps.push(`${name} ends`);
    };
    clearing.add('a', work('a'));
    clearing.add('b', work('b'));
    clearing.add('b', work('b again'));
    await clearing.drain();
    expect(steps).toEqual(['a begins', 'a ends', 'b begins', 'b ends']);
  });

  it('waits while the machine is busy, and not when it is asked to end', async () => {
    let isBusy = true;
    const clearing = new Clearing(() => isBusy, log);
    const done: string[] = [];
    clearing.add('a', async () => void done.push('a'));
    await delay(100);
    expect(done).toEqual([]);
    isBusy = false;
    await expect.poll(() => done, { timeout: 10_000 }).toEqual(['a']);
    isBusy = true;
    clearing.add('b', async () => void done.push('b'));
    await clearing.drain();
    expect(done).toEqual(['a', 'b']);
  });

  it('does not wait when too many do', async () => {
    const clearing = new Clearing(() => true, log);
    const done = new Set<number>();
    for (let number = 0; number < 80; number++) clearing.add(`${number}`, async () => void done.add(number));
    await expect.poll(() => done.size).toBeGreaterThan(10);
    await delay(50);
    expect(done.size).toBeLessThan(80);
    await clearing.drain();
    expect(done.size).toBe(80);
  });

  it('goes on with the others after a failure', async () => {
    const clearing = new Clearing(() => false, log);
    const done: string[] = [];
    clearing.add('a', () => Promise.reject(new Error('busy')));
    clearing.add('b', async () => void done.push('b'));
    await clearing.drain();
    expect(done).toEqual(['b']);
  });
});
