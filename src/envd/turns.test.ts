import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Turns } from './turns.ts';

test('one after the other for one key, side by side for two', async () => {
  const turns = new Turns();
  const seen: string[] = [];
  const work = async (key: string, name: string, ms: number) => {
    const done = await turns.take(key, 1000);
    seen.push(`${name} begins`);
    await delay(ms);
    seen.push(`${name} ends`);
    done();
  };
  await Promise.all([work('a', 'first', 30), work('a', 'second', 1), work('b', 'other', 1)]);
  expect(seen).toEqual(['first begins', 'other begins', 'other ends', 'first ends', 'second begins', 'second ends']);
});

test('nobody waits for ever', async () => {
  const turns = new Turns();
  await turns.take('a', 1000);
  const begun = performance.now();
  await turns.take('a', 50);
  expect(performance.now() - begun).toBeLessThan(500);
});
