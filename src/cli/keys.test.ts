import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { loadConfig } from '../core/config.ts';
import { openDatabase } from '../db/database.ts';
import { TeamStore } from '../db/team-store.ts';
import { ensureFirstTeam } from '../teams/first-start.ts';
import { runKeys } from './keys.ts';

describe('sandbar keys', () => {
  const config = loadConfig({});
  let output: string[];
  beforeEach(async () => {
    config.stateDir = mkdtempSync(path.join(tmpdir(), 'sandbar-keys-'));
    output = [];
    vi.spyOn(console, 'log').mockImplementation((line) => void output.push(line));
  });
  afterEach(() => {
    vi.restoreAllMocks();
    rmSync(config.stateDir, { recursive: true });
  });
  const startOnce = async () => {
    const database = await openDatabase(config);
    await ensureFirstTeam(new TeamStore(database), config);
    await database.destroy();
  };

  it('makes a key that is shown once, lists it masked and revokes it', async () => {
    await startOnce();
    await runKeys(config, ['create'], 'for the build');
    const value = output.pop() ?? '';
    expect(value).toMatch(/^e2b_[0-9a-f]{40}$/);

    await runKeys(config, ['list'], undefined);
    const line = output.find((each) => each.includes('for the build')) ?? '';
    expect(line).toContain(value.slice(-4));
    expect(output.join('\n')).not.toContain(value);

    const id = line.split(' ')[0] ?? '';
    await runKeys(config, ['revoke', id], undefined);
    output = [];
    await runKeys(config, ['list'], undefined);
    expect(output.join('\n')).not.toContain(id);
  });

  it('says so when there is no such key', async () => {
    await startOnce();
    await expect(runKeys(config, ['revoke', 'none'], undefined)).rejects.toThrow(/'none' not found/);
  });

  it('says so when the service was never started', async () => {
    await expect(runKeys(config, ['list'], undefined)).rejects.toThrow(/never started/);
  });
});
