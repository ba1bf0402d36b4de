import { availableParallelism } from 'node:os';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Log } from '../core/log.ts';
import { type WarmKind, WarmPool } from './warm-pool.ts';

const KIND: WarmKind = {
  runtime: 'container',
  templateId: 'base',
  buildId: 'base',
  layers: ['base'],
  resources: { cpuCount: 1, memoryMb: 256, diskSizeMb: 512, pidsMax: 256 },
};
/** Longer than a busy machine makes the pool wait. */
const PATIENT = { timeout: 10_000 };

describe('the warm pool', { timeout: 30_000 }, () => {
  let boots: PromiseWithResolvers<string>[];
  let discarded: string[];
  let hurried: Set<number>;
  let busy: boolean;
  let pool: WarmPool;

  const open = (least: number, most: number) => {
    const boot = () => {
      const booting = Promise.withResolvers<string>();
      const at = boots.push(booting) - 1;
      return { booted: booting.promise, hurry: () => void hurried.add(at) };
    };
    pool = new WarmPool(
      { least, most, boot, isBusy: () => busy, discard: async (id) => void discarded.push(id) },
      new Log('error'),
    );
    pool.start();
  };

  beforeEach(() => {
    boots = [];
    discarded = [];
    hurried = new Set();
    busy = false;
  });
  afterEach(async () => {
    for (const [index, { resolve }] of boots.entries()) resolve(`late ${index}`);
    await pool.stop();
  });

  it('boots what is expected, gives it once, and discards what nobody took', async () => {
    open(1, 1);
    pool.expect(KIND);
    await expect.poll(() => boots.length, PATIENT).toBe(1);
    boots[0]?.resolve('first');
    await expect.poll(() => boots.length).toBe(1);
    expect(await pool.take(KIND)).toBe('first');
    await expect.poll(() => boots.length, PATIENT).toBe(2);
    boots[1]?.resolve('second');
    await boots[1]?.promise;
    await pool.stop();
    expect(discarded).toEqual(['second']);
  });

  it('gives the one that is being booted to who comes first, and nothing to the next', async () => {
    open(1, 1);
    pool.expect(KIND);
    await expect.poll(() => boots.length, PATIENT).toBe(1);
    const [taken, next] = [pool.take(KIND), pool.take(KIND)];
    expect(await next).toBeUndefined();
    boots[0]?.resolve('first');
    expect(await taken).toBe('first');
  });

  it('boots in the background while one is ready, and hurries what comes when none is', async () => {
    const atOnce = availableParallelism();
    const first = (count: number) => new Set(Array.from({ length: count }, (_, index) => index));
    open(4 * atOnce, 4 * atOnce);
    pool.expect(KIND);
    await expect.poll(() => boots.length, PATIENT).toBe(atOnce);
    expect(hurried).toEqual(first(atOnce));
    boots[0]?.resolve('first');
    await expect.poll(() => boots.length, PATIENT).toBe(atOnce + 1);
    expect(hurried).toEqual(first(atOnce));
    expect(await pool.take(KIND)).toBe('first');
    expect(hurried).toEqual(first(atOnce + 1));
  });

  it('boots in the background on a busy machine, until somebody waits for it', async () => {
    busy = true;
    open(1, 1);
    pool.expect(KIND);
    await expect.poll(() => boots.length, PATIENT).toBe(1);
    expect(hurried).toEqual(new Set());
    void pool.take(KIND);
    expect(hurried).toEqual(new Set([0]));
  });

  it('gives nothing where the boot fails', async () => {
    open(1, 1);
    pool.expect(KIND);
    await expect.poll(() => boots.length, PATIENT).toBe(1);
    const taken = pool.take(KIND);
    boots[0]?.reject(new Error('no place'));
    expect(await taken).toBeUndefined();
  });

  it('is as large as the demand, up to its limit', async () => {
    open(0, 3);
    const atOnce = await Promise.all(Array.from({ length: 5 }, () => pool.take(KIND)));
    expect(atOnce.every((id) => id === undefined)).toBe(true);
    for (let index = 0; index < 3; index++) {
      await expect.poll(() => boots.length, PATIENT).toBeGreaterThan(index);
      boots[index]?.resolve(`number ${index}`);
    }
    const given = [await pool.take(KIND), await pool.take(KIND), await pool.take(KIND)];
    expect(given.toSorted()).toEqual(['number 0', 'number 1', 'number 2']);
  });

  it('keeps nothing where it is turned off', async () => {
    open(0, 0);
    pool.expect(KIND);
    expect(await pool.take(KIND)).toBeUndefined();
    expect(boots).toEqual([]);
  });
});
