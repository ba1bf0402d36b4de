import path from 'node:path';
import { expect, it } from 'vitest';
import { runPython } from '../support/python.ts';
import { describeOnRuntimes } from '../support/service.ts';

describeOnRuntimes('the lifecycle through the Python SDK', (service) => {
  it('holds every scenario', async () => {
    const { stdout } = await runPython(path.join(import.meta.dirname, 'scenarios.py'), { env: service().env });
    expect(stdout.trim().split('\n')).toEqual([
      'ok pause_keeps_memory',
      'ok pause_of_files_alone',
      'ok deadlines',
      'ok auto_pause_and_wake',
      'ok snapshots',
      'ok forks',
      'ok metrics',
    ]);
  });
});
