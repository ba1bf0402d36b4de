import { describe, expect, it } from 'vitest';
import { runCommand } from './command.ts';

describe('runCommand', () => {
  it('gives what the program wrote', async () => {
    const result = await runCommand('sh', ['-c', 'echo out; echo err >&2']);
    expect(result).toEqual({ status: 0, stdout: 'out\n', stderr: 'err\n' });
  });

  it('hands arguments over as they are, without a shell', async () => {
    const { stdout } = await runCommand('printf', ['%s', '$(id) `id` "']);
    expect(stdout).toBe('$(id) `id` "');
  });

  it('writes the input and closes it', async () => {
    const { stdout } = await runCommand('cat', [], { input: 'fed' });
    expect(stdout).toBe('fed');
  });

  it('is not disturbed by a program that does not read its input', async () => {
    await expect(runCommand('true', [], { input: 'x'.repeat(1_000_000) })).resolves.toMatchObject({ status: 0 });
  });

  it('puts status and standard error in the error', async () => {
    await expect(runCommand('sh', ['-c', 'echo broken >&2; exit 3'])).rejects.toThrow(/exited with 3: broken/);
  });

  it('takes the statuses that the caller allows', async () => {
    await expect(runCommand('sh', ['-c', 'exit 3'], { okStatuses: [0, 3] })).resolves.toMatchObject({ status: 3 });
  });

  it('ends a program that takes too long', async () => {
    await expect(runCommand('sleep', ['60'], { timeoutMs: 50 })).rejects.toThrow(/took longer than 50 ms/);
  });

  it('ends the program when the caller gives up, and throws what the caller gave', async () => {
    const reason = new Error('no longer wanted');
    const abort = new AbortController();
    const running = runCommand('sleep', ['60'], { signal: abort.signal });
    abort.abort(reason);
    await expect(running).rejects.toBe(reason);
    await expect(runCommand('true', [], { signal: abort.signal })).rejects.toBe(reason);
  });

  it('names a program that is not there', async () => {
    await expect(runCommand('no-such-program', [])).rejects.toThrow(/no-such-program: .*ENOENT/);
  });

  it('passes lines on while the program runs', async () => {
    const lines: string[] = [];
    await runCommand('sh', ['-c', 'echo one; echo two >&2; printf three'], { onLine: (line) => lines.push(line) });
    expect(lines.sort()).toEqual(['one', 'three', 'two']);
  });
});
