import { describe, expect, it } from 'vitest';
import { SharedWork } from './shared-work.ts';

const never = new AbortController().signal;

describe('shared work', () => {
  it('is done once for all that want it, and everybody hears everything', async () => {
    const work = new SharedWork<string, string>();
    let begun = 0;
    const { promise: go, resolve } = Promise.withResolvers<void>();
    const begin = async (say: (saying: string) => void) => {
      begun++;
      say('first');
      await go;
      say('second');
      return 'done';
    };
    const heard: string[][] = [[], []];
    const results = [0, 1].map((index) => work.do('k', begin, (saying) => heard[index]?.push(saying), never));
    resolve();
    expect(await Promise.all(results)).toEqual(['done', 'done']);
    expect(begun).toBe(1);
    expect(heard).toEqual([
      ['first', 'second'],
      ['first', 'second'],
    ]);
    await work.do('k', begin, () => undefined, never);
    expect(begun).toBe(2);
  });

  it('goes on when one leaves and is given up when the last does', async () => {
    const work = new SharedWork<void, never>();
    let given = false;
    const begin = (_: unknown, signal: AbortSignal) =>
      new Promise<void>((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          given = true;
          reject(signal.reason);
        });
      });
    const leaving = [new AbortController(), new AbortController()];
    const waiting = leaving.map(({ signal }) => work.do('k', begin, () => undefined, signal));
    leaving[0]?.abort(new Error('first left'));
    await expect(waiting[0]).rejects.toThrow('first left');
    expect(given).toBe(false);
    leaving[1]?.abort(new Error('second left'));
    await expect(waiting[1]).rejects.toThrow('second left');
    expect(given).toBe(true);
  });

  it('fails for everybody when it fails', async () => {
    const work = new SharedWork<void, never>();
    const begin = async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      throw new Error('broken');
    };
    const both = await Promise.allSettled([0, 1].map(() => work.do('k', begin, () => undefined, never)));
    expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });
});
