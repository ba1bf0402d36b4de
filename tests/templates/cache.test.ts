import { Template } from 'e2b';
import { expect, it } from 'vitest';
import { describeOnRuntimes } from '../support/service.ts';
import { type Built, buildTemplate, contextDirectory, runIn } from './support.ts';

/** Steps that were run, by number; the others came from the cache. */
function stepsRun({ lines }: Built): number[] {
  return lines.flatMap((line) => {
    const match = /^\[builder (\d+)\/\d+\] (RUN|COPY|WORKDIR|USER) /.exec(line);
    return match === null ? [] : [Number(match[1])];
  });
}

describeOnRuntimes('the layers of a build', (service) => {
  const tenSteps = (change = '') => {
    let template = Template().fromBaseImage();
    for (let at = 1; at <= 10; at++)
      template = template.runCmd(`echo step ${at}${at === 8 ? change : ''} >> /home/user/steps`);
    return template;
  };

  it('are all taken again when nothing has changed, in under 2 s', async () => {
    const first = await buildTemplate(service(), tenSteps(), 'ten');
    expect(stepsRun(first)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    const second = await buildTemplate(service(), tenSteps(), 'ten');
    expect(stepsRun(second)).toEqual([]);
    expect(second.lines.filter((line) => line.startsWith('CACHED [builder'))).toHaveLength(10);
    expect(second.milliseconds).toBeLessThan(2000);
  });

  it('are made again from the step that has changed', async () => {
    const changed = await buildTemplate(service(), tenSteps(' changed'), 'ten');
    expect(stepsRun(changed)).toEqual([8, 9, 10]);
    const steps = Array.from({ length: 10 }, (_, at) => `step ${at + 1}${at === 7 ? ' changed' : ''}\n`).join('');
    expect(await runIn(service(), 'ten', 'cat steps')).toBe(steps);
    // What was there before is not forgotten.
    expect(stepsRun(await buildTemplate(service(), tenSteps(), 'ten'))).toEqual([]);
  });

  it('are made again for other files, and for files that are uploaded anew', async () => {
    const build = async (content: string, options: object = {}) => {
      const fileContextPath = await contextDirectory({ 'file.txt': content });
      return buildTemplate(
        service(),
        Template({ fileContextPath })
          .fromBaseImage()
          .runCmd('true')
          .copy('file.txt', '/opt/', options)
          .runCmd('cat /opt/file.txt'),
        'files',
      );
    };
    expect(stepsRun(await build('a'))).toEqual([1, 2, 3]);
    expect(stepsRun(await build('a'))).toEqual([]);
    expect(stepsRun(await build('b'))).toEqual([2, 3]);
    expect(stepsRun(await build('b', { forceUpload: true }))).toEqual([2, 3]);
  });

  it('are made again where the cache is skipped', async () => {
    const dated = (skip: boolean) => {
      const begun = Template().fromBaseImage().runCmd('echo first');
      return (skip ? begun.skipCache() : begun).runCmd('date +%N > /home/user/when').runCmd('cat /home/user/when');
    };
    await buildTemplate(service(), dated(false), 'dated');
    const before = await runIn(service(), 'dated', 'cat when');
    expect(stepsRun(await buildTemplate(service(), dated(true), 'dated'))).toEqual([2, 3]);
    const after = await runIn(service(), 'dated', 'cat when');
    expect(after).not.toBe(before);
    expect(stepsRun(await buildTemplate(service(), dated(false), 'dated', { skipCache: true }))).toEqual([1, 2, 3]);
    // The newest is what is remembered.
    const newest = await runIn(service(), 'dated', 'cat when');
    expect(stepsRun(await buildTemplate(service(), dated(false), 'dated'))).toEqual([]);
    expect(await runIn(service(), 'dated', 'cat when')).toBe(newest);
  });

  it('are shared by builds at the same time: each shared step runs once', async () => {
    const marked = (own: number) => {
      let template = Template().fromBaseImage();
      for (let at = 1; at <= 5; at++)
        template = template.runCmd(`sleep 0.3; echo shared ${at}; date +%s%N > /home/user/shared${at}`);
      return template.runCmd(`echo own ${own} > /home/user/own`);
    };
    const built = await Promise.all(
      [1, 2, 3, 4, 5].map((own) => buildTemplate(service(), marked(own), `sharing-${own}`)),
    );
    const files = await Promise.all(
      built.map((_, at) => runIn(service(), `sharing-${at + 1}`, 'cat shared? own').then((text) => text.split('\n'))),
    );
    // A step that ran twice would have left two times.
    for (let step = 0; step < 5; step++) expect(new Set(files.map((lines) => lines[step])).size).toBe(1);
    expect(files.map((lines) => lines[5])).toEqual([1, 2, 3, 4, 5].map((own) => `own ${own}`));
    // Everybody saw the output of what was run for all.
    for (const { lines } of built) expect(lines.join('\n')).toContain('[builder 3/6] [stdout]: shared 3');
  });

  it('may be more than can be stacked at once', async () => {
    let template = Template().fromBaseImage();
    for (let at = 1; at <= 70; at++)
      template = template.runCmd(`echo ${at} > /home/user/n; rm -f /home/user/old; touch /home/user/old`);
    await buildTemplate(service(), template, 'deep');
    expect(await runIn(service(), 'deep', 'cat n; ls')).toBe('70\nn\nold\n');
  });
});
