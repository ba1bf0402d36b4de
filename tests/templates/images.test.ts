import path from 'node:path';
import { Template } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { REGISTRY_LOGIN, smallSystem, TestRegistry } from '../support/registry.ts';
import { describeOnRuntimes } from '../support/service.ts';
import { type Built, buildTemplate, failedBuild, runIn } from './support.ts';

/** Images of a real registry, as bases of templates. */
describe('images', () => {
  let registry: TestRegistry;
  let guarded: TestRegistry;

  beforeAll(async () => {
    [registry, guarded] = await Promise.all([TestRegistry.start(), TestRegistry.start({ login: true })]);
    const system = path.join(registry.directory, 'small');
    await smallSystem(system);
    const base = {
      from: system,
      files: { 'opt/kept/one': '1', 'opt/kept/two': '2', 'opt/hidden/x': 'x', 'opt/gone': 'g', 'opt/tree/a/b': 'b' },
    };
    const middle = {
      files: { 'opt/kept/three': '3', 'opt/link': '-> kept' },
      remove: ['opt/gone', 'opt/tree'],
      opaque: ['opt/hidden'],
    };
    const config = {
      Env: ['APP=of the image', 'PATH=/opt/bin:/usr/bin:/bin'],
      User: 'nobody',
      WorkingDir: '/opt',
      Entrypoint: ['/bin/false'],
    };
    await registry.push(
      'test/app:v1',
      [base, middle, { files: { 'opt/hidden/new': 'n' }, remove: ['opt/kept/one'] }],
      config,
    );
    // Shares two layers with the other.
    await registry.push('test/app:v2', [base, middle, { files: { 'opt/version': '2' } }], config);
    await guarded.push('secret/app:v1', [base], {}, true);
    await registry.push('no/shell:v1', [{ files: { 'etc/motd': 'nothing here' } }]);
  });
  afterAll(async () => {
    await registry?.stop();
    await guarded?.stop();
  });

  describeOnRuntimes('of a registry', (service) => {
    const printed = ({ lines }: Built) =>
      lines.filter((line) => line.includes('[stdout]')).map((line) => line.split('[stdout]: ')[1]);

    it('become templates: layers in order, whiteouts right, ENV for the steps, the user of sandboxes', async () => {
      const steps = Template()
        .fromImage(`${registry.host}/test/app:v1`)
        .runCmd(
          'find /opt | sort; echo "$APP|$PATH"; whoami; pwd; sudo id -un; cat /etc/resolv.conf; ls -d /.e2b /code',
        );
      const built = await buildTemplate(service(), steps, 'image');
      expect(printed(built)).toEqual([
        '/opt',
        '/opt/hidden',
        '/opt/hidden/new',
        '/opt/kept',
        '/opt/kept/three',
        '/opt/kept/two',
        '/opt/link',
        'of the image|/opt/bin:/usr/bin:/bin',
        'user',
        '/home/user',
        'root',
        'nameserver 8.8.8.8',
        '/.e2b',
        '/code',
      ]);
      expect(
        await runIn(service(), 'image', 'cat /opt/link/three; whoami; pwd; touch /usr/local/x /code/x && echo made'),
      ).toBe('3user\n/home/user\nmade\n');
    });

    it('are not fetched again while they are the same, and share layers', async () => {
      const again = await buildTemplate(
        service(),
        Template().fromImage(`${registry.host}/test/app:v1`).runCmd('true'),
        'image',
      );
      expect(again.lines.join('\n')).not.toContain('fetching');
      const other = await buildTemplate(
        service(),
        Template().fromImage(`${registry.host}/test/app:v2`).runCmd('cat /opt/version'),
        'other',
      );
      expect(other.lines.filter((line) => line.includes('unpacking'))).toEqual(['[base] unpacking layer 3 of 3']);
    });

    it('follow a tag that moves', async () => {
      const moving = Template().fromImage(`${registry.host}/test/moving:latest`).runCmd('cat /opt/which');
      for (const which of ['first', 'second']) {
        const system = path.join(registry.directory, 'small');
        await registry.push('test/moving:latest', [{ from: system, files: { 'opt/which': which } }]);
        expect(printed(await buildTemplate(service(), moving, 'moving'))).toEqual([which]);
      }
    });

    it('need the right credentials where the registry asks for them', async () => {
      const image = `${guarded.host}/secret/app:v1`;
      const refused = /access to image '.*' was refused: check its name and the registry credentials/;
      expect((await failedBuild(service(), Template().fromImage(image), 'secret')).message).toMatch(refused);
      const wrong = Template().fromImage(image, { ...REGISTRY_LOGIN, password: 'wrong' });
      expect((await failedBuild(service(), wrong, 'secret')).message).toMatch(refused);
      await buildTemplate(service(), Template().fromImage(image, REGISTRY_LOGIN), 'secret');
      expect(await runIn(service(), 'secret', 'cat /opt/kept/one')).toBe('1');
      // Having it here is no leave for one who shows no credentials.
      expect((await failedBuild(service(), Template().fromImage(image), 'secret2')).message).toMatch(refused);
      expect(service().output).not.toContain(REGISTRY_LOGIN.password);
    });

    it('that cannot be had are named, with the reason', async () => {
      const why = async (image: string) =>
        (await failedBuild(service(), Template().fromImage(image), 'missing')).message;
      expect(await why(`${registry.host}/test/app:v9`)).toBe(
        `image '${registry.host}/test/app:v9' was not found in its registry`,
      );
      expect(await why(`${registry.host}/nobody/knows`)).toBe(
        `image '${registry.host}/nobody/knows:latest' was not found in its registry`,
      );
      expect(await why('127.0.0.1:9/x')).toMatch(
        /the registry of image '127.0.0.1:9\/x:latest' cannot be reached: .*refused/,
      );
      expect(await why('Not An Image')).toBe("'Not An Image' is not the name of an image");
      expect(await why(`${registry.host}/no/shell:v1`)).toBe('the image has no shell: sandboxes need one');
    });
  });
});
