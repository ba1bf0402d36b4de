import { describe, expect, it } from 'vitest';
import { Places } from './places.ts';

describe('places', () => {
  it('let in as many as there are, and the others in the order of coming', async () => {
    const places = new Places(2, 60_000);
    const begun: number[] = [];
    const gates = Array.from({ length: 4 }, () => Promise.withResolvers<void>());
    const all = gates.map(({ promise }, index) =>
      places.run(async () => {
        begun.push(index);
        await promise;
        return index;
      }),
    );
    await Promise.resolve();
    expect(begun).toEqual([0, 1]);
    gates[1]?.resolve();
    await all[1];
    await Promise.resolve();
    expect(begun).toEqual([0, 1, 2]);
    for (const { resolve } of gates) resolve();
    expect(await Promise.all(all)).toEqual([0, 1, 2, 3]);
  });

  it('are not kept by what is slow', async () => {
    const places = new Places(1, 10);
    const slow = Promise.withResolvers<string>();
    const first = places.run(() => slow.promise);
    expect(await places.run(async () => 'quick')).toBe('quick');
    slow.resolve('slow');
    expect(await first).toBe('slow');
    // Given back once, not twice.
    const order: string[] = [];
    await Promise.all(
      ['a', 'b'].map((name) =>
        places.run(async () => {
          order.push(`${name} begins`);
          await Promise.resolve();
          order.push(`${name} ends`);
        }),
      ),
    );
    expect(order).toEqual(['a begins', 'a ends', 'b begins', 'b ends']);
  });

  it('are free again after a failure', async () => {
    const places = new Places(1, 60_000);
    await expect(places.run(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(await places.run(async () => 'yes')).toBe('yes');
  });

  it('are left to those who wait, for a time', async () => {
    const places = new Places(1, 60_000);
    await places.letOthersIn(60_000);
    const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const order: string[] = [];
    const all = [first, second].map(({ promise }, index) =>
      places.run(async () => {
        order.push(`${index} begins`);
        await promise;
      }),
    );
    const polite = places.letOthersIn(60_000).then(() => order.push('polite'));
    await places.letOthersIn(1);
    expect(order).toEqual(['0 begins']);
    first.resolve();
    await polite;
    expect(order).toEqual(['0 begins', '1 begins', 'polite']);
    second.resolve();
    await Promise.all(all);
  });
});
