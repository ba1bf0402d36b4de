import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { withLock } from './lock.ts';

const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-lock-'));
afterAll(() => rmSync(directory, { recursive: true }));

describe('withLock', () => {
  const file = path.join(directory, 'made/for/it/lock');

  it('lets one at a time in and tells the one who waits', async () => {
    let inside = 0;
    let most = 0;
    let waited = 0;
    const enter = () =>
      withLock(
        file,
        () => waited++,
        async () => {
          most = Math.max(most, ++inside);
          await sleep(50);
          inside--;
        },
      );
    await Promise.all([enter(), enter(), enter()]);
    expect(most).toBe(1);
    expect(waited).toBe(2);
  });

  it('is free again after a failure', async () => {
    const failing = withLock(
      file,
      () => undefined,
      async () => {
        throw new Error('broken');
      },
    );
    await expect(failing).rejects.toThrow('broken');
    await expect(
      withLock(
        file,
        () => expect.unreachable(),
        async () => 'in',
      ),
    ).resolves.toBe('in');
  });
});
