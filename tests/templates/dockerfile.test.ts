import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Sandbox } from 'e2b';
import { expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { describeOnRuntimes, type TestService } from '../support/service.ts';
import { api, contextDirectory, endOfBuild, runIn } from './support.ts';

const text = (lines: string[]) => `${lines.join('\n')}\n`;

/** The access token that a first start leaves for the machine's owner. */
function bearer(service: TestService): Record<string, string> {
  return { authorization: `Bearer ${readFileSync(path.join(service.stateDir, 'access-token'), 'utf8').trim()}` };
}

describeOnRuntimes('a Dockerfile as text', (service) => {
  const post = (url: string, body: object) =>
    api(service(), 'POST', url, body, { 'x-api-key': '', ...bearer(service()) });

  it('builds: stages, heredocs, variables, words and shells, start command', async () => {
    const dockerfile = text([
      '# syntax=docker/dockerfile:1',
      'ARG BASE=e2bdev/base',
      'FROM $BASE AS build',
      'WORKDIR /src',
      'COPY <<MAIN /src/main.sh',
      '#!/bin/sh',
      'echo built with $VERSION',
      'MAIN',
      'ARG VERSION=7',
      'ENV VERSION=${VERSION}.1',
      'RUN <<SCRIPT',
      'set -e',
      'mkdir -p /out/share',
      'sh /src/main.sh > /out/share/message',
      'printf data > /out/data',
      'SCRIPT',
      '',
      'FROM e2bdev/base AS unused',
      'RUN exit 1',
      '',
      'FROM e2bdev/base',
      'COPY --from=build --chown=user --chmod=750 /out/ /opt/result/',
      'COPY --from=0 /out/data /opt/copied',
      'RUN ["/bin/sh", "-c", "echo $0 > /opt/words", "no shell"]',
      'SHELL ["/bin/bash", "-c"]',
      'RUN echo ${BASH_VERSION:+bash} > /opt/shell && \\',
      '    # a comment between',
      '    whoami >> /opt/shell',
      'EXPOSE 8080',
      'ENV PORT=8080',
      'CMD ["sh", "-c", "exec python3 -m http.server $PORT"]',
    ]);
    const made = await post('/templates', {
      dockerfile,
      alias: 'from-text',
      readyCmd: 'ss -ltn | grep -q :8080',
      cpuCount: 1,
      memoryMB: 512,
    });
    expect(made).toMatchObject({
      status: 202,
      body: { aliases: ['from-text'], cpuCount: 1, memoryMB: 512, buildCount: 1 },
    });
    const ids = made.body as { templateID: string; buildID: string };
    expect((await post(`/templates/${ids.templateID}/builds/${ids.buildID}`, {})).status).toBe(202);
    expect(await endOfBuild(service(), ids)).toMatchObject({ status: 'ready' });
    const shown =
      'cat /opt/result/share/message /opt/result/data /opt/words /opt/shell; stat -c "%U %a" /opt/result/data; whoami; pwd';
    expect(await runIn(service(), 'from-text', shown)).toBe(
      'built with\ndatano shell\nbash\nroot\nuser 750\nuser\n/home/user\n',
    );
    const sandbox = await Sandbox.create('from-text', service().connection);
    expect((await service().fetchInside(sandbox.sandboxId, '/', {}, 8080)).status).toBe(200);
    await sandbox.kill();

    const rebuilt = await post(`/templates/${ids.templateID}`, {
      dockerfile: text(['FROM e2bdev/base', 'USER root', 'WORKDIR /srv', 'RUN echo again > file']),
      startCmd: 'touch /srv/started',
      readyCmd: 'test -e /srv/started',
    });
    expect(rebuilt).toMatchObject({ status: 202, body: { templateID: ids.templateID, buildCount: 2 } });
    expect(await endOfBuild(service(), rebuilt.body as typeof ids)).toMatchObject({ status: 'ready' });
    expect(await runIn(service(), 'from-text', 'cat file; whoami; pwd; ls')).toBe('again\nroot\n/srv\nfile\nstarted\n');
  });

  it('takes files that were uploaded before', async () => {
    const directory = await contextDirectory({ 'src/a.txt': 'a', 'src/b/c.txt': 'c', 'top.txt': 'top' });
    const archive = path.join(directory, '..', `${path.basename(directory)}.tar`);
    await runCommand('tar', ['-C', directory, '-cf', archive, '.']);
    const bytes = readFileSync(archive);
    const filesHash = createHash('sha256').update(bytes).digest('hex');
    const first = await api(service(), 'POST', '/v3/templates', { name: 'with-files' });
    const { templateID } = first.body as { templateID: string };
    const link = await api(service(), 'GET', `/templates/${templateID}/files/${filesHash}`);
    expect(link).toMatchObject({ status: 201, body: { present: false, url: expect.stringContaining(service().url) } });
    const { url } = link.body as { url: string };
    expect((await fetch(url.replace(/signature=.{4}/, 'signature=0000'), { method: 'PUT', body: bytes })).status).toBe(
      403,
    );
    expect((await fetch(url, { method: 'PUT', body: bytes })).status).toBe(200);
    expect(await api(service(), 'GET', `/templates/${templateID}/files/${filesHash}`)).toMatchObject({
      body: { present: true },
    });
    const dockerfile = text(['FROM e2bdev/base', 'COPY src /srv/src', 'ADD top.txt /srv/']);
    const made = await post(`/templates/${templateID}`, { dockerfile, filesHash });
    expect(await endOfBuild(service(), made.body as { templateID: string; buildID: string })).toMatchObject({
      status: 'ready',
    });
    expect(await runIn(service(), 'with-files', 'cd /srv; find . -type f | sort; stat -c %U top.txt')).toBe(
      './src/a.txt\n./src/b/c.txt\n./top.txt\nroot\n',
    );
  });

  it('is refused with the line where it asks for what there is not', async () => {
    const refused = async (...lines: string[]) => {
      const { status, body } = await post('/templates', { dockerfile: text(lines) });
      return [status, (body as { message: string }).message];
    };
    expect(await refused('FROM e2bdev/base', 'RUN --mount=type=secret,id=x y')).toEqual([
      400,
      'Dockerfile line 2: RUN --mount is not supported',
    ]);
    expect(await refused('FROM e2bdev/base', '', 'COPY a /b')).toEqual([
      400,
      expect.stringContaining("Dockerfile line 3: COPY takes files of the build's directory"),
    ]);
    expect(await refused('RUN x')).toEqual([400, 'Dockerfile line 1: RUN stands before FROM']);
  });

  it('needs an access token, not an API key', async () => {
    const body = { dockerfile: 'FROM e2bdev/base\n' };
    expect((await api(service(), 'POST', '/templates', body)).status).toBe(401);
    expect((await post('/templates/base', body)).status).toBe(403);
    expect((await post('/templates/nothing', body)).status).toBe(404);
    expect((await post('/templates', { ...body, teamID: 'another' })).status).toBe(403);
  });
});
