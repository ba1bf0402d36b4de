import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ArtifactStore, removeTree } from './artifact-store.ts';

describe('ArtifactStore', () => {
  let cacheDir: string;
  let store: ArtifactStore;
  beforeEach(() => {
    cacheDir = mkdtempSync(path.join(tmpdir(), 'sandbar-artifacts-'));
    store = new ArtifactStore(cacheDir, 'thing');
  });
  afterEach(() => rmSync(cacheDir, { recursive: true, force: true }));
  const fill = (text: string) => (directory: string) => writeFile(path.join(directory, 'file'), text);

  it('has nothing at first', () => {
    expect(store.current()).toBeUndefined();
    expect(store.has('a')).toBe(false);
  });

  it('points at what was added last and keeps what was before', async () => {
    await store.add('a', fill('first'));
    await store.add('b', fill('second'));
    expect(readFileSync(path.join(store.current()!, 'file'), 'utf8')).toBe('second');
    expect(store.has('a')).toBe(true);
    await store.select('a');
    expect(path.basename(store.current()!)).toBe('a');
  });

  it('leaves nothing of what failed, and the one in use as it was', async () => {
    await store.add('a', fill('good'));
    const failing = async (directory: string) => {
      await writeFile(path.join(directory, 'half'), '');
      throw new Error('interrupted');
    };
    await expect(store.add('b', failing)).rejects.toThrow('interrupted');
    expect(readdirSync(store.directory).sort()).toEqual(['a', 'current']);
    expect(path.basename(store.current()!)).toBe('a');
  });

  it('removes what an interrupted run left', async () => {
    await store.add('a', fill('good'));
    await mkdir(path.join(store.directory, '.making-0123/rootfs'), { recursive: true });
    await store.removeLeftovers();
    expect(readdirSync(store.directory).sort()).toEqual(['a', 'current']);
  });

  it('takes a pointer to something that is gone as nothing', async () => {
    await store.add('a', fill('good'));
    rmSync(path.join(store.directory, 'a'), { recursive: true });
    expect(store.current()).toBeUndefined();
  });

  it('removes no tree in which something is mounted', async () => {
    await expect(removeTree('/proc')).rejects.toThrow(/still mounted/);
    expect(existsSync('/proc/self')).toBe(true);
  });
});
