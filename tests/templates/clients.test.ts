import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { runPython } from '../support/python.ts';
import { describeOnRuntimes } from '../support/service.ts';
import { contextDirectory, runIn } from './support.ts';

const CLI = path.resolve(import.meta.dirname, '../../node_modules/.bin/e2b');

describeOnRuntimes('other clients build templates:', (service) => {
  it('the Python SDK', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-context-'));
    try {
      const script = path.join(import.meta.dirname, 'build.py');
      const { stdout } = await runPython(script, { env: service().env, args: [directory], timeoutMs: 110_000 });
      expect(stdout).toContain('{"ok": true}');
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });

  it('`e2b template create`, and its list, publish and delete', async () => {
    const directory = await contextDirectory({
      'e2b.Dockerfile': [
        'FROM e2bdev/base',
        'ENV GREETING=hello',
        'WORKDIR /srv',
        'COPY data.txt /srv/',
        'RUN echo $GREETING > made && cat data.txt >> made',
        '',
      ].join('\n'),
      'data.txt': 'from the directory\n',
    });
    const cli = async (...words: string[]) => {
      const env = { PATH: process.env['PATH'], HOME: directory, ...service().env };
      const { stdout, stderr } = await runCommand(CLI, ['template', ...words], {
        env,
        cwd: directory,
        timeoutMs: 110_000,
      });
      return stdout + stderr;
    };
    const said = await cli(
      'create',
      'by-cli',
      '--cmd',
      'python3 -m http.server 8500',
      '--ready-cmd',
      'ss -ltn | grep -q :8500',
      '--memory-mb',
      '512',
    );
    expect(said).toContain('by-cli');
    expect(await runIn(service(), 'by-cli', 'pwd; cat made; whoami; curl -s localhost:8500 | head -c 9')).toBe(
      '/srv\nhello\nfrom the directory\nuser\n<!DOCTYPE',
    );
    expect(await cli('list')).toContain('by-cli');
    const { body } = {
      body: (await (await service().fetch('/templates')).json()) as { templateID: string; aliases: string[] }[],
    };
    const id = body.find(({ aliases }) => aliases.includes('by-cli'))?.templateID ?? '';
    await cli('publish', '--yes', id);
    await cli('unpublish', '--yes', id);
    await cli('delete', '--yes', id);
    expect(await cli('list')).not.toContain('by-cli');
  });
});
