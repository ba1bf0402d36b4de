import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { runPython } from '../support/python.ts';
import { describeOnRuntimes } from '../support/service.ts';

const root = path.resolve(import.meta.dirname, '../..');
const readme = readFileSync(path.join(root, 'README.md'), 'utf8');

/** The first block of a language in the README. */
function block(language: string): string {
  const found = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(readme)?.[1];
  if (found === undefined) throw new Error(`the README has no ${language}`);
  return found;
}

describeOnRuntimes(
  'what the README says',
  (service) => {
    async function inDirectory(work: (directory: string) => Promise<void>): Promise<void> {
      const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-readme-'));
      try {
        await work(directory);
      } finally {
        rmSync(directory, { recursive: true });
      }
    }

    it('works in JavaScript', () =>
      inDirectory(async (directory) => {
        symlinkSync(path.join(root, 'node_modules'), path.join(directory, 'node_modules'));
        const script = path.join(directory, 'hello.mjs');
        writeFileSync(script, block('js'));
        const { E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY } = service().env;
        const { stdout } = await runCommand(process.execPath, [script], {
          env: { PATH: process.env['PATH'], E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY },
        });
        expect(stdout).toBe('42\n\nwritten from outside\n');
      }));

    it('works in Python', () =>
      inDirectory(async (directory) => {
        const script = path.join(directory, 'hello.py');
        writeFileSync(script, block('python'));
        const { E2B_API_URL = '', E2B_SANDBOX_URL = '', E2B_API_KEY = '' } = service().env;
        const { stdout } = await runPython(script, { env: { E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY } });
        expect(stdout).toBe('42\n\nwritten from outside\n');
      }));
  },
  // As it is started by `npm start`, with sandboxes booted ahead.
  { env: { SANDBAR_WARM_POOL: '2' } },
);
