import { Sandbox, Template, waitForFile, waitForPort, waitForProcess, waitForTimeout, waitForURL } from 'e2b';
import { describe, expect, it } from 'vitest';
import { describeOnRuntimes } from '../support/service.ts';
import { buildTemplate, contextDirectory, failedBuild, runIn } from './support.ts';

/** The template builder of the newest JavaScript SDK, against real builds. */
describeOnRuntimes('the template builder', (service, runtime) => {
  it('builds from the base, and the log says what was done', async () => {
    const { info, entries, lines } = await buildTemplate(
      service(),
      Template().fromBaseImage().runCmd(['echo to stdout', 'echo to stderr >&2', 'whoami', 'pwd']),
      'plain',
    );
    expect(info).toMatchObject({ name: 'plain', tags: ['default'] });
    expect(lines).toEqual(
      expect.arrayContaining([
        '[base] FROM e2bdev/base',
        '[builder 1/1] [stdout]: to stdout',
        '[builder 1/1] [stderr]: to stderr',
        '[builder 1/1] [stdout]: user',
        '[builder 1/1] [stdout]: /home/user',
      ]),
    );
    const levelOf = (text: string) => entries.find(({ message }) => message.endsWith(text))?.level;
    expect([levelOf(': to stdout'), levelOf(': to stderr')]).toEqual(['info', 'warn']);
    expect(lines.at(-2)).toMatch(/^Build finished, took/);
  });

  it('copies files and directories by the rules of a Dockerfile', async () => {
    const fileContextPath = await contextDirectory({
      'one.txt': 'one',
      'two.txt': 'two',
      'run.sh': '#!/bin/sh\necho ran',
      'app/main.py': 'print("main")',
      'app/lib/deep.py': 'deep',
      'app/link.py': '-> main.py',
      'app/outside': '-> /etc/hostname',
      'other/x.conf': 'x',
      'skipped.log': 'no',
      '.dockerignore': '*.log\n',
    });
    const template = Template({ fileContextPath })
      .fromBaseImage()
      .copy('one.txt', '/opt/renamed.txt')
      .copy('one.txt', '/opt/dir/')
      .copy(['one.txt', 'two.txt'], '/opt/both/')
      .copy('*.txt', '/opt/globbed/')
      .copy('app', '/srv/app', { user: 'root' })
      .copy('other', '/srv/app')
      .copy('run.sh', '/usr/local/bin/')
      .copy('two.txt', '/opt/mode.txt', { mode: 0o600, user: 'root' })
      .copyItems([{ src: 'app/lib', dest: 'relative', mode: 0o755 }])
      .copy('app', '/srv/resolved', { resolveSymlinks: true })
      .copy('one.txt', '/opt/plain.txt', { gzip: false, forceUpload: true })
      .copy('.', '/opt/all/');
    await buildTemplate(service(), template, 'copied');
    const shown = await runIn(
      service(),
      'copied',
      [
        'cat /opt/renamed.txt /opt/dir/one.txt /opt/plain.txt; echo',
        'ls /opt/both /opt/globbed',
        'run.sh',
        'stat -c "%U %a" /opt/mode.txt /srv/app/main.py /opt/renamed.txt',
        'readlink /srv/app/link.py /srv/app/outside',
        'cat /srv/app/x.conf /srv/app/lib/deep.py /home/user/relative/deep.py; echo',
        'test -L /srv/resolved/link.py || cat /srv/resolved/link.py; echo',
        'ls -A /opt/all',
      ].join(' && '),
    );
    expect(shown.split('\n')).toEqual([
      'oneoneone',
      '/opt/both:',
      'one.txt',
      'two.txt',
      '',
      '/opt/globbed:',
      'one.txt',
      'two.txt',
      'ran',
      'root 600',
      'root 644',
      'user 644',
      'main.py',
      '/etc/hostname',
      'xdeepdeep',
      'print("main")',
      '.dockerignore',
      'app',
      'one.txt',
      'other',
      'run.sh',
      'two.txt',
      '',
    ]);
  });

  it('sets variables, directory and user for the steps after, and user and directory for sandboxes', async () => {
    const { lines } = await buildTemplate(
      service(),
      Template()
        .fromBaseImage()
        .setEnvs({ GREETING: 'hello world', BIN: '/opt/bin' })
        .setEnvs({ PATH: '$BIN:$PATH', QUOTED: `it's "$GREETING"` })
        .runCmd('echo "$GREETING|$PATH|$QUOTED"')
        .setWorkdir('/srv')
        .setWorkdir('made/here')
        .runCmd('pwd; stat -c %U .')
        .setUser('root')
        .runCmd('whoami')
        .setUser('carol')
        .runCmd('whoami; echo ~')
        .runCmd('whoami', { user: 'root' }),
      'context',
    );
    const printed = lines.filter((line) => line.includes('[stdout]')).map((line) => line.split('[stdout]: ')[1]);
    expect(printed).toEqual([
      `hello world|/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin|it's "hello world"`,
      '/srv/made/here',
      'user',
      'root',
      'carol',
      '/home/carol',
      'root',
    ]);
    // Variables of a template are for its steps and its start command; a sandbox has its own.
    expect(await runIn(service(), 'context', 'whoami; pwd; echo "<$GREETING>"')).toBe('carol\n/srv/made/here\n<>\n');
  });

  it('has the helpers for files', async () => {
    const template = Template()
      .fromBaseImage()
      .makeDir(['/tmp/a', '/tmp/b/c'], { mode: 0o750 })
      .runCmd('touch /tmp/a/file "/tmp/a/with space"')
      .makeSymlink('/tmp/a/file', '/tmp/link')
      .makeSymlink('/tmp/a', '/tmp/link', { force: true })
      .rename('/tmp/a/file', '/tmp/a/renamed')
      .remove('/tmp/a/with space')
      .remove('/tmp/b', { recursive: true, force: true });
    await buildTemplate(service(), template, 'filed');
    expect(await runIn(service(), 'filed', 'ls /tmp/a; ls -d /tmp/b 2>&1; stat -c %a /tmp/a')).toBe(
      "renamed\nls: cannot access '/tmp/b': No such file or directory\n750\n",
    );
  });

  it('clones a repository', async () => {
    const template = Template()
      .fromBaseImage()
      .runCmd(
        'git init -q -b main /tmp/origin && cd /tmp/origin && echo text > file && git add . && git -c user.name=a -c user.email=a@b commit -qm one && git branch other',
      )
      .gitClone('file:///tmp/origin', '/home/user/copy', { branch: 'other', depth: 1 });
    await buildTemplate(service(), template, 'cloned');
    expect(await runIn(service(), 'cloned', 'cd copy && git branch --show-current && cat file')).toBe('other\ntext\n');
  });

  it('installs packages of the distribution', async () => {
    await buildTemplate(
      service(),
      Template().fromBaseImage().aptInstall(['tree'], { noInstallRecommends: true }),
      'packaged',
    );
    expect(await runIn(service(), 'packaged', 'tree --version')).toContain('tree v');
  });

  it('builds upon another template, with what it set and with its start command', async () => {
    await buildTemplate(
      service(),
      Template()
        .fromBaseImage()
        .setEnvs({ FROM_PARENT: 'yes' })
        .setWorkdir('/srv/parent')
        .runCmd('echo parent > file')
        .setStartCmd('python3 -m http.server 8123', waitForPort(8123)),
      'parent',
    );
    const { lines } = await buildTemplate(
      service(),
      Template().fromTemplate('parent').runCmd('pwd; cat file; echo $FROM_PARENT'),
      'child',
    );
    expect(lines).toEqual(
      expect.arrayContaining([
        '[builder 1/1] [stdout]: /srv/parent',
        '[builder 1/1] [stdout]: parent',
        '[builder 1/1] [stdout]: yes',
        'Running start command: python3 -m http.server 8123',
      ]),
    );
    const sandbox = await Sandbox.create('child', service().connection);
    expect((await service().fetchInside(sandbox.sandboxId, '/file', {}, 8123)).status).toBe(200);
    await sandbox.kill();
  });

  it.each([
    ['a port', () => waitForPort(8200)],
    ['an address', () => waitForURL('http://localhost:8200/')],
    ['a process', () => waitForProcess('python3')],
    ['a file', () => waitForFile('/tmp/started')],
    ['a time', () => waitForTimeout(1500)],
  ])('waits for %s before it takes the template as it runs', async (_what, ready) => {
    const name = 'ready';
    const { lines } = await buildTemplate(
      service(),
      Template()
        .fromBaseImage()
        .setEnvs({ PORT: '8200' })
        .setStartCmd('touch /tmp/started; exec python3 -m http.server $PORT', ready()),
      name,
    );
    expect(lines).toContain('Template is ready');
    const sandbox = await Sandbox.create(name, service().connection);
    const processes = await sandbox.commands.list();
    // It has been started; its shell may need a moment until it is the server.
    const running = async () => (await sandbox.commands.run('pgrep -af http.server || true')).stdout;
    await expect.poll(running, { timeout: 10_000 }).toContain('python3 -m http.server 8200');
    if (runtime === 'gvisor') expect(processes.length).toBeGreaterThan(0);
    await sandbox.kill();
  });

  it('has a server of a start command that needs 5 s up when a sandbox begins', async () => {
    await buildTemplate(
      service(),
      Template().fromBaseImage().setStartCmd('sleep 5; exec python3 -m http.server 8300', waitForPort(8300)),
      'slow-server',
    );
    // The first one may have to read the image from disk.
    await (await Sandbox.create('slow-server', service().connection)).kill();
    const began = Date.now();
    const sandbox = await Sandbox.create('slow-server', service().connection);
    const answer = await service().fetchInside(sandbox.sandboxId, '/', {}, 8300);
    const took = Date.now() - began;
    expect(answer.status).toBe(200);
    // A container cannot keep its memory: the command runs again, and the sandbox is given when it is ready.
    expect(took).toBeLessThan(runtime === 'gvisor' ? 1000 : 15_000);
    await sandbox.kill();
  });

  it('reports a failed step with its number, command and output', async () => {
    const { message, lines } = await failedBuild(
      service(),
      Template().fromBaseImage().runCmd('true').runCmd('echo the reason >&2; exit 7').runCmd('echo not reached'),
      'failing',
    );
    expect(message).toBe(`failed to run command 'echo the reason >&2; exit 7': command failed: exit status 7`);
    expect(lines).toContain('[builder 2/3] [stderr]: the reason');
    expect(lines.join('\n')).not.toContain('[builder 3/3]');
  });

  it('takes a user that does not exist for a mistake', async () => {
    const { message } = await failedBuild(
      service(),
      Template().fromBaseImage().runCmd('whoami', { user: 'root123' }),
      'x',
    );
    expect(message).toBe(
      `failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'`,
    );
  });

  it('says why a start command that dies, or never gets ready, is no template', async () => {
    const dies = await failedBuild(service(), Template().fromBaseImage().setStartCmd('exit 4', waitForPort(1)), 'dies');
    expect(dies.message).toBe('start command failed: exit status 4');
  });

  describe('in the background', () => {
    it('gives the status and the log in pages', async () => {
      const steps = Template().fromBaseImage().runCmd('for i in $(seq 1 150); do echo line $i; done');
      const info = await Template.buildInBackground(steps, 'background', service().connection);
      const lines: string[] = [];
      for (;;) {
        const state = await Template.getBuildStatus(info, { ...service().connection, logsOffset: lines.length });
        lines.push(...state.logEntries.map(({ message }) => message));
        expect(state.logEntries.length).toBeLessThanOrEqual(100);
        expect(state.logs).toEqual([]);
        if (state.status === 'ready' && state.logEntries.length === 0) break;
        expect(state.status).not.toBe('error');
      }
      const printed = lines.filter((line) => line.includes('[stdout]: line'));
      expect(printed).toEqual(Array.from({ length: 150 }, (_, at) => `[builder 1/1] [stdout]: line ${at + 1}`));
    });
  });
});
