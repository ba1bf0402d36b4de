import path from 'node:path';
import { type Execution, Sandbox } from '@e2b/code-interpreter';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { FULL } from '../support/full.ts';
import { RUNTIMES } from '../support/node.ts';
import { runPython } from '../support/python.ts';
import { startTestService, type TestService } from '../support/service.ts';

const root = path.resolve(import.meta.dirname, '../..');
const BUILD_MS = 580_000;

/** The template that comes with the service, built by its one command, and the newest packages against it. */
describe.each(FULL ? RUNTIMES : RUNTIMES.slice(0, 1))('the code interpreter on %s', (runtime) => {
  let service: TestService;
  let sandbox: Sandbox;
  const stdout = ({ logs }: Execution) => logs.stdout.join('');

  beforeAll(async () => {
    service = await startTestService({ runtime });
    const env = {
      ...process.env,
      SANDBAR_STATE_DIR: service.stateDir,
      SANDBAR_PORT: String(service.port),
      SANDBAR_RUNTIME: runtime,
    };
    const words = ['src/main.ts', 'templates', 'build', 'code-interpreter'];
    const { stdout: said } = await runCommand(process.execPath, words, { cwd: root, env, timeoutMs: BUILD_MS });
    expect(said).toContain('code-interpreter-v1 is ready');
    sandbox = await Sandbox.create({ ...service.connection, envs: { FROM_SANDBOX: 'outer' } });
  }, BUILD_MS);
  afterAll(async () => {
    await sandbox?.kill();
    await service?.dispose();
  });

  it('keeps variables, and gives the last value', async () => {
    expect((await sandbox.runCode('x = 41')).results).toEqual([]);
    const execution = await sandbox.runCode('x += 1\nx');
    expect(execution.text).toBe('42');
    expect(execution.results[0]?.isMainResult).toBe(true);
    expect(execution.executionCount).toBeGreaterThan(1);
    expect((await sandbox.runCode("'a string'")).text).toBe('a string');
  });

  it('streams what is printed, as it is printed', async () => {
    const heard: { line: string; at: number }[] = [];
    const errors: string[] = [];
    const began = Date.now();
    const execution = await sandbox.runCode(
      'import sys, time\nfor i in range(4):\n    print(i, flush=True)\n    time.sleep(0.4)\nprint("bad", file=sys.stderr)',
      {
        onStdout: ({ line }) => heard.push({ line, at: Date.now() - began }),
        onStderr: ({ line }) => errors.push(line),
      },
    );
    expect(stdout(execution)).toBe('0\n1\n2\n3\n');
    expect(errors.join('')).toBe('bad\n');
    expect((heard.at(-1)?.at ?? 0) - (heard[0]?.at ?? 0)).toBeGreaterThan(800);
  });

  it('gives rich results: html, data, png, chart, markdown, latex, json, svg', async () => {
    const table = await sandbox.runCode("import pandas as pd\npd.DataFrame({'name': ['a', 'b'], 'n': [1, 2]})");
    expect(table.results[0]?.html).toContain('<table');
    expect(table.results[0]?.data).toEqual({ name: ['a', 'b'], n: [1, 2] });
    const figure = await sandbox.runCode(
      "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], label='line')\nplt.title('title')\nplt.xlabel('time (s)')\nplt.show()",
    );
    expect(
      Buffer.from(figure.results[0]?.png ?? '', 'base64')
        .subarray(1, 4)
        .toString(),
    ).toBe('PNG');
    expect(figure.results[0]?.chart).toMatchObject({
      type: 'line',
      title: 'title',
      x_label: 'time (s)',
      x_unit: 's',
      elements: [
        {
          label: 'line',
          points: [
            [1, 4],
            [2, 5],
            [3, 6],
          ],
        },
      ],
    });
    const bars = await sandbox.runCode("plt.figure(); plt.bar(['a', 'b'], [3, 4]); plt.show()");
    expect(bars.results[0]?.chart).toMatchObject({
      type: 'bar',
      elements: [
        { label: 'a', value: 3 },
        { label: 'b', value: 4 },
      ],
    });
    const shown = await sandbox.runCode(
      "from IPython.display import *\ndisplay(Markdown('# m'), Latex('$x$'), JSON({'a': 1}), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'), HTML('<b>h</b>'))",
    );
    expect(shown.results.map((result) => result.formats())).toEqual([
      ['markdown'],
      ['latex'],
      ['json'],
      ['svg'],
      ['html'],
    ]);
    expect(shown.results.every(({ isMainResult }) => !isMainResult)).toBe(true);
    const plotted = await sandbox.runCode('import plotly.express as px\npx.line(x=[1, 2], y=[3, 4]).show()');
    expect(plotted.error).toBeUndefined();
    expect(plotted.results[0]?.html).toContain('Plotly.newPlot');
  });

  it('gives an error with its traceback, and goes on', async () => {
    const { error } = await sandbox.runCode('def broken():\n    return 1 / 0\nbroken()');
    expect(error).toMatchObject({ name: 'ZeroDivisionError', value: 'division by zero' });
    expect(error?.traceback).toContain('broken');
    expect((await sandbox.runCode('1 + 1')).text).toBe('2');
    expect((await sandbox.runCode('this is no python')).error?.name).toBe('SyntaxError');
  });

  it('has the variables of the sandbox, and those of one run', async () => {
    expect((await sandbox.runCode("import os; os.environ['FROM_SANDBOX']")).text).toBe('outer');
    expect((await sandbox.runCode("os.environ['ONCE']", { envs: { ONCE: 'once' } })).text).toBe('once');
    expect((await sandbox.runCode("os.environ.get('ONCE', 'gone')")).text).toBe('gone');
    expect((await sandbox.runCode('process.env.FROM_SANDBOX', { language: 'javascript' })).text).toBe('outer');
    expect(
      stdout(await sandbox.runCode('echo $FROM_SANDBOX-$ONCE', { language: 'bash', envs: { ONCE: "it's" } })),
    ).toBe("outer-it's\n");
  });

  it('keeps contexts apart, in their directories, and restarts and removes them', async () => {
    const context = await sandbox.createCodeContext({ cwd: '/tmp' });
    expect(context).toMatchObject({ language: 'python', cwd: '/tmp' });
    await sandbox.runCode("where = 'there'", { context });
    expect((await sandbox.runCode('import os; (os.getcwd(), where)', { context })).text).toBe("('/tmp', 'there')");
    expect((await sandbox.runCode('where')).error?.name).toBe('NameError');
    expect((await sandbox.listCodeContexts()).map(({ id }) => id)).toContain(context.id);
    await sandbox.restartCodeContext(context);
    expect((await sandbox.runCode('where', { context })).error?.name).toBe('NameError');
    await sandbox.removeCodeContext(context);
    await expect(sandbox.runCode('1', { context })).rejects.toThrow(/not found/);
    await expect(sandbox.removeCodeContext(context)).rejects.toThrow(/not found/);
    await expect(sandbox.createCodeContext({ cwd: '/no-such-place' })).rejects.toThrow(/400/);
  });

  it('ends what runs in a context that is restarted', async () => {
    const context = await sandbox.createCodeContext();
    const begun = Promise.withResolvers<void>();
    const running = sandbox.runCode("import time\nprint('begun', flush=True)\ntime.sleep(50)", {
      context,
      onStdout: () => begun.resolve(),
    });
    await begun.promise;
    await sandbox.restartCodeContext(context);
    expect((await running).error?.name).toBe('KernelDied');
    expect((await sandbox.runCode('1 + 1', { context })).text).toBe('2');
    await sandbox.removeCodeContext(context);
  });

  it('runs JavaScript: state, await, imports, errors', async () => {
    const js = (code: string) => sandbox.runCode(code, { language: 'javascript' });
    await js('const list = [1, 2, 3]; function twice(n) { return n * 2 }');
    expect((await js('list.map(twice)')).text).toBe('[ 2, 4, 6 ]');
    expect(
      stdout(
        await js(
          "import path from 'node:path'\nimport { sep } from 'node:path'\nconsole.log(path.join('a', 'b') + sep)",
        ),
      ),
    ).toBe('a/b/\n');
    expect((await js('await new Promise((resolve) => setTimeout(() => resolve(7), 10))')).text).toBe('7');
    const { error } = await js("throw new TypeError('wrong')");
    expect(error).toMatchObject({ name: 'TypeError', value: 'wrong' });
    expect((await js('typeof list')).text).toBe('object');
    const typed = await sandbox.runCode('const n: number = 5; interface A { x: string }; n * 2', {
      language: 'typescript',
    });
    expect(typed.text).toBe('10');
  });

  it('runs bash: state, output, status', async () => {
    const bash = (code: string) => sandbox.runCode(code, { language: 'bash' });
    await bash('cd /tmp; name=value; greet() { echo "hello $1"; }');
    const shown = await bash('pwd; echo $name; greet you; echo bad >&2');
    expect(stdout(shown)).toBe('/tmp\nvalue\nhello you\n');
    expect(shown.logs.stderr.join('')).toBe('bad\n');
    expect((await bash('ls /no-such-place')).error).toMatchObject({ value: '2' });
    expect(stdout(await bash('printf "no line feed"'))).toBe('no line feed');
    expect((await bash('exit 3')).error?.name).toBe('KernelDied');
    expect(stdout(await bash('echo back'))).toBe('back\n');
  });

  it('interrupts code whose client has gone', async () => {
    await expect(sandbox.runCode('while True: pass', { timeoutMs: 1500 })).rejects.toThrow(/timed out/i);
    expect((await sandbox.runCode('1 + 2', { timeoutMs: 20_000 })).text).toBe('3');
    await sandbox.runCode('let kept = 3', { language: 'javascript' });
    for (const endless of ['while (true) {}', 'await new Promise(() => {})']) {
      const running = sandbox.runCode(endless, { language: 'javascript', timeoutMs: 1500 });
      await expect(running).rejects.toThrow(/timed out/i);
      expect((await sandbox.runCode('kept', { language: 'javascript', timeoutMs: 20_000 })).text).toBe('3');
    }
    const running = sandbox.runCode('while true; do :; done', { language: 'bash', timeoutMs: 1500 });
    await expect(running).rejects.toThrow(/timed out/i);
    expect(stdout(await sandbox.runCode('echo back', { language: 'bash', timeoutMs: 20_000 }))).toBe('back\n');
  });

  it('does not interrupt one client when another has gone that waits behind it', async () => {
    const begun = Promise.withResolvers<void>();
    const slow = sandbox.runCode("import time\nprint('begun', flush=True)\ntime.sleep(3)\n'whole'", {
      onStdout: () => begun.resolve(),
    });
    await begun.promise;
    await expect(sandbox.runCode("print('never')", { requestTimeoutMs: 1000 })).rejects.toThrow(/timed out/i);
    expect((await slow).text).toBe('whole');
  });

  it('is there at once in a new sandbox', async () => {
    const began = Date.now();
    const other = await Sandbox.create(service.connection);
    expect((await other.runCode('2 ** 10')).text).toBe('1024');
    const took = Date.now() - began;
    await other.kill();
    expect(took).toBeLessThan(runtime === 'gvisor' ? 3000 : 20_000);
  });

  it('serves the Python package', async () => {
    const script = path.join(import.meta.dirname, 'code_interpreter.py');
    const { stdout: said } = await runPython(script, {
      env: service.env,
      packages: 'e2b-code-interpreter',
      timeoutMs: 110_000,
    });
    expect(said).toContain('{"ok": true}');
  });
});
