import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { examine, findingLine } from './doctor.ts';
import { kernelAtLeast, readCgroups } from './doctor-host.ts';

describe('doctor', () => {
  it('prints one line for a finding, with the mend where there is something to mend', () => {
    expect(findingLine('kernel', { level: 'ok', text: '6.1.0' })).toBe('ok    kernel         6.1.0');
    expect(findingLine('agent', { level: 'fail', text: 'not built', mend: 'build it' })).toBe(
      'fail  agent          not built -> build it',
    );
  });

  it('takes a check that throws as failed, on one line', async () => {
    const look = async () => {
      throw new Error('broken\nbadly');
    };
    const finding = await examine({ subject: 'x', mend: 'mend it', look });
    expect(finding).toEqual({ level: 'fail', text: 'broken badly', mend: 'mend it' });
  });

  it.each([
    ['5.10.0-28-amd64', true],
    ['5.9.1', false],
    ['6.1.0', true],
    ['4.19.0', false],
    ['10.0', true],
  ])('kernel %s is new enough: %s', (kernel, expected) => {
    expect(kernelAtLeast(kernel, 5, 10)).toBe(expected);
  });
});

describe('readCgroups', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(path.join(tmpdir(), 'sandbar-cgroups-'));
  });
  afterEach(() => rmSync(root, { recursive: true }));
  const put = (file: string, text = '') => {
    mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    writeFileSync(path.join(root, file), text);
  };

  it('reads version 2', () => {
    put('cgroup.controllers', 'cpuset cpu io memory pids\n');
    expect(readCgroups(root)).toEqual({ kind: 'version 2', controllers: ['cpuset', 'cpu', 'io', 'memory', 'pids'] });
  });

  it('reads a hybrid host', () => {
    for (const name of ['cpu', 'memory', 'pids']) put(`${name}/cgroup.procs`);
    put('unified/cgroup.controllers');
    expect(readCgroups(root)).toMatchObject({
      kind: expect.stringContaining('hybrid'),
      controllers: ['cpu', 'memory', 'pids'],
    });
  });

  it('reads version 1', () => {
    put('memory/cgroup.procs');
    expect(readCgroups(root)).toEqual({ kind: 'version 1', controllers: ['memory'] });
  });
});
