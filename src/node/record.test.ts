import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Layout } from './layout.ts';
import { Records, type SandboxRecord } from './record.ts';

describe('records', () => {
  let directory: string;
  let layout: Layout;
  let records: Records;

  beforeEach(() => {
    directory = mkdtempSync(path.join(tmpdir(), 'sandbar-records-'));
    layout = new Layout(directory);
    records = new Records(layout);
  });

  afterEach(() => rmSync(directory, { recursive: true }));

  const record = (state: SandboxRecord['state'], envBytes = 0): SandboxRecord => ({
    id: 'ione',
    runtime: 'container',
    templateId: 'base',
    buildId: 'b',
    layers: ['l'],
    resources: { cpuCount: 2, memoryMb: 512, diskSizeMb: 1024, pidsMax: 100 },
    guest: { env: { FILL: 'é'.repeat(envBytes / 2) }, defaultUser: 'user', defaultWorkdir: '' },
    agentFile: '/agent',
    slot: 1,
    secret: 'ab'.repeat(32),
    pid: 7,
    state,
    held: false,
  });

  it('are read back as they were last written, whatever was there before', async () => {
    for (const [state, envBytes] of [
      ['booting', 0],
      ['pooled', 3_000],
      ['running', 0],
      ['paused', 0],
      ['running', 9_000],
      ['running', 0],
      ['paused', 9_000],
      ['running', 2],
    ] as const) {
      const written = record(state, envBytes);
      await records.write(written);
      expect((await records.all()).get('ione')).toEqual(written);
      expect(readdirSync(layout.sandboxDir('ione'))).toEqual(['record.json']);
    }
  });

  it('that were never finished are told apart', async () => {
    await records.write(record('booting'));
    writeFileSync(path.join(layout.sandboxDir('ione'), 'record.json'), '');
    expect([...(await records.all())]).toEqual([['ione', undefined]]);
  });
});
