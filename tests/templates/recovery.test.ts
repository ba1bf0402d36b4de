import { readdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Template } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { countLeftovers } from '../support/leftovers.ts';
import { RUNTIMES } from '../support/node.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { api, buildTemplate, endOfBuild, runIn } from './support.ts';

describe.each(RUNTIMES)('a build on %s', (runtime) => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({ runtime, env: { SANDBAR_MAX_BUILDS: '2' } });
  });
  afterAll(async () => {
    await service?.dispose();
  });

  const slow = (text: string) =>
    Template().fromBaseImage().runCmd('echo one > /home/user/one').runCmd(`sleep 60; echo ${text}`);
  const begin = async (name: string, text = 'x') => {
    const info = await Template.buildInBackground(slow(text), name, service.connection);
    const ids = { templateID: info.templateId, buildID: info.buildId };
    // Under way: the second step runs.
    for (;;) {
      const { body } = await api(service, 'GET', `/templates/${ids.templateID}/builds/${ids.buildID}/status`);
      const { logEntries } = body as { logEntries: { message: string }[] };
      if (logEntries.some(({ message }) => /builder 2\/2\] RUN/.test(message))) return ids;
      await sleep(100);
    }
  };

  it('that the service was killed under ends in an error, and a new one works', async () => {
    const ids = await begin('killed');
    await sleep(500);
    await service.kill9();
    await service.start();
    expect(await endOfBuild(service, ids)).toMatchObject({
      status: 'error',
      reason: { message: 'the service was stopped during the build: build again' },
    });
    await expect
      .poll(async () => (await countLeftovers(service.stateDir)).directories, { timeout: 10_000 })
      .toBeLessThanOrEqual(1);
    expect(readdirSync(path.join(service.stateDir, 'layers')).filter((name) => name.includes('.'))).toEqual([]);
    const { lines } = await buildTemplate(
      service,
      Template().fromBaseImage().runCmd('echo one > /home/user/one').runCmd('cat /home/user/one'),
      'killed',
    );
    // What was whole before the end is still good.
    expect(lines.some((line) => line.startsWith('CACHED [builder 1/2]'))).toBe(true);
    expect(await runIn(service, 'killed', 'cat one')).toBe('one\n');
  });

  it('that the service was stopped under ends in an error too', async () => {
    const ids = await begin('stopped');
    await service.restart();
    expect(await endOfBuild(service, ids)).toMatchObject({
      status: 'error',
      reason: { message: expect.stringContaining('stopped') },
    });
  });

  it('gives way to a newer one of the same template, and ends with its template', async () => {
    const older = await begin('replaced');
    const newer = await begin('replaced', 'newer');
    expect(await endOfBuild(service, older)).toMatchObject({
      status: 'error',
      reason: { message: expect.stringContaining('a newer build of the same template was requested') },
    });
    expect((await api(service, 'DELETE', `/templates/${newer.templateID}`)).status).toBe(204);
    await expect
      .poll(async () => (await countLeftovers(service.stateDir)).directories, { timeout: 10_000 })
      .toBeLessThanOrEqual(1);
  });

  it('is refused where too many are under way', async () => {
    await begin('many-1');
    await begin('many-2');
    const third = Template.buildInBackground(slow('x'), 'many-3', service.connection);
    await expect(third).rejects.toThrow(/maximum number of concurrent template builds \(2\)/);
    for (const name of ['many-1', 'many-2']) await api(service, 'DELETE', `/templates/${name}`);
  });
});
