import { mkdtempSync, rmSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ArtifactStore } from './artifact-store.ts';
import { locateArtifacts } from './artifacts.ts';

describe('locateArtifacts', () => {
  let cacheDir: string;
  beforeEach(() => {
    cacheDir = mkdtempSync(path.join(tmpdir(), 'sandbar-locate-'));
  });
  afterEach(() => rmSync(cacheDir, { recursive: true }));
  const add = (kind: string, files: Record<string, string>) =>
    new ArtifactStore(cacheDir, kind).add('key', async (directory) => {
      for (const [name, text] of Object.entries(files)) await writeFile(path.join(directory, name), text);
    });

  const addPrograms = async () => {
    await add('agent', { 'sandbar-agent': '' });
    await add('host', { 'sandbar-host': '' });
  };

  it('names what is missing and the command that mends it', async () => {
    expect(() => locateArtifacts({ cacheDir })).toThrow(/sandbar-agent is not built.*npm start/);
    await addPrograms();
    expect(() => locateArtifacts({ cacheDir })).toThrow(/no base template.*npm start/);
  });

  it('does without runsc', async () => {
    await addPrograms();
    await add('base', { 'template.json': '{}' });
    expect(locateArtifacts({ cacheDir })).toMatchObject({
      agent: path.join(cacheDir, 'agent/key/sandbar-agent'),
      hostHelper: path.join(cacheDir, 'host/key/sandbar-host'),
      runsc: undefined,
      baseTemplate: { key: 'key', rootfs: path.join(cacheDir, 'base/key/rootfs') },
    });
  });

  it('gives runsc with its origin and features', async () => {
    await addPrograms();
    await add('base', {});
    await add('runsc', {
      runsc: '',
      'features.json': '{"origin":"here","version":"1","features":{"fsCheckpoint":true}}',
    });
    expect(locateArtifacts({ cacheDir }).runsc).toEqual({
      path: path.join(cacheDir, 'runsc/key/runsc'),
      origin: 'here',
      version: '1',
      features: { fsCheckpoint: true },
    });
  });
});
