import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Image, type ImageInfo } from './images.ts';

const INFO: ImageInfo = {
  runtime: 'gvisor',
  memory: true,
  files: false,
  layers: [],
  resources: { cpuCount: 1, memoryMb: 128, diskSizeMb: 128, pidsMax: 10 },
  secret: '',
  agentFile: '/agent',
  createdAt: 1,
};

describe('an image', () => {
  let parent: string;
  let image: Image;

  beforeEach(() => {
    parent = mkdtempSync(path.join(tmpdir(), 'sandbar-images-'));
    image = new Image(path.join(parent, 'one'));
  });

  afterEach(() => rmSync(parent, { recursive: true }));

  const write = (createdAt: number) =>
    image.write({ ...INFO, createdAt }, async (directory) => {
      mkdirSync(path.join(directory, 'memory'));
      writeFileSync(path.join(directory, 'memory', 'pages'), 'x');
    });

  it('is replaced whole', async () => {
    await write(1);
    await write(2);
    await image.recover();
    expect(await image.info()).toMatchObject({ createdAt: 2 });
    expect(readdirSync(parent)).toEqual(['one']);
  });

  it('keeps the older one where the newer cannot be written', async () => {
    await write(1);
    await expect(image.write(INFO, () => Promise.reject(new Error('disk full')))).rejects.toThrow('disk full');
    expect(await image.info()).toMatchObject({ createdAt: 1 });
    expect(readdirSync(parent)).toEqual(['one']);
  });

  it('is taken back from its old name, and what is half made is dropped', async () => {
    await write(1);
    mkdirSync(`${image.directory}.new`);
    renameSync(image.directory, `${image.directory}.old`);
    await image.recover();
    expect(await image.info()).toMatchObject({ createdAt: 1 });
    expect(readdirSync(parent)).toEqual(['one']);
  });

  it('that was half removed is gone after a recovery', async () => {
    await write(1);
    rmSync(path.join(image.directory, 'image.json'));
    expect(image.exists).toBe(false);
    await image.recover();
    expect(existsSync(image.directory)).toBe(false);
    await image.remove();
  });
});
