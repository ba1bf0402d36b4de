import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { countLeftovers } from '../support/leftovers.ts';
import { describeOnRuntimes, type TestService } from '../support/service.ts';
import { api, endOfBuild } from './support.ts';

interface TarEntry {
  name: string;
  type?: '0' | '1' | '2' | '3' | '5' | '6';
  link?: string;
  content?: string;
}

/** A tar archive as a client that means no good would write it. */
function tar(entries: TarEntry[]): Buffer {
  const blocks = entries.flatMap(({ name, type = '0', link = '', content = '' }) => {
    const header = Buffer.alloc(512);
    header.write(name, 0);
    header.write('0000644\0', 100);
    header.write('0000000\0', 108);
    header.write('0000000\0', 116);
    header.write(`${content.length.toString(8).padStart(11, '0')}\0`, 124);
    header.write('00000000000\0', 136);
    header.write(type, 156);
    header.write(link, 157);
    header.write('ustar\x0000', 257);
    header.fill(' ', 148, 156);
    header.write(
      `${header
        .reduce((sum, byte) => sum + byte, 0)
        .toString(8)
        .padStart(6, '0')}\0 `,
      148,
    );
    const body = Buffer.alloc(Math.ceil(content.length / 512) * 512);
    body.write(content);
    return [header, body];
  });
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

interface BadInput {
  what: string;
  /** Body of the start of the build; `copy` adds a COPY step of an uploaded archive. */
  build?: object;
  copy?: { archive?: Buffer; source?: string; destination?: string; owner?: string; mode?: string };
  message: RegExp | string;
  step: string;
}

const run = (command: string, more: object[] = []) => ({
  fromTemplate: 'base',
  steps: [{ type: 'RUN', args: [command] }, ...more],
});
const good = tar([{ name: 'file', content: 'x' }]);

const INPUTS: BadInput[] = [
  {
    what: 'a base template that does not exist',
    build: { fromTemplate: 'never-built' },
    message: "base template 'never-built' not found",
    step: 'base',
  },
  {
    what: 'a tag that does not exist',
    build: { fromTemplate: 'base:v9' },
    message: "base tag 'v9' does not exist for template 'base'",
    step: 'base',
  },
  {
    what: 'a name that is no image',
    build: { fromImage: '../etc/passwd' },
    message: "'../etc/passwd' is not the name of an image",
    step: 'base',
  },
  {
    what: 'a registry that is not there',
    build: { fromImage: '127.0.0.1:9/x' },
    message: /the registry of image .* cannot be reached/,
    step: 'base',
  },
  {
    what: 'a step of unknown type',
    build: { fromTemplate: 'base', steps: [{ type: 'JUMP', args: ['high'] }] },
    message: "unknown step type 'JUMP'",
    step: '1',
  },
  {
    what: 'a RUN without a command',
    build: { fromTemplate: 'base', steps: [{ type: 'RUN', args: [] }] },
    message: 'RUN: the command is missing',
    step: '1',
  },
  {
    what: 'an ENV with half a pair',
    build: { fromTemplate: 'base', steps: [{ type: 'ENV', args: ['A'] }] },
    message: 'ENV: names and values do not come in pairs',
    step: '1',
  },
  {
    what: 'a user with a bad name',
    build: { fromTemplate: 'base', steps: [{ type: 'USER', args: ['no such:user name'] }] },
    message: /cannot make the user 'no such': invalid username/,
    step: '1',
  },
  {
    what: 'a directory below a file',
    build: { fromTemplate: 'base', steps: [{ type: 'WORKDIR', args: ['/etc/passwd/x'] }] },
    message: "cannot make the directory '/etc/passwd/x': '/etc/passwd' is not a directory",
    step: '1',
  },
  {
    what: 'a syntax error',
    build: run('if then'),
    message: /failed to run command 'if then': command failed: exit status [12]/,
    step: '1',
  },
  {
    what: 'a command that does not exist',
    build: run('true', [{ type: 'RUN', args: ['no-such-program'] }]),
    message: /'no-such-program': command failed: exit status 127/,
    step: '2',
  },
  {
    what: 'a step that fills the disk',
    build: run('dd if=/dev/zero bs=1M of=/home/user/full'),
    message: /command failed: exit status 1/,
    step: '1',
  },
  {
    what: 'a step that never ends',
    build: run('sleep 1000'),
    message: /command failed: took longer than 8 s and was killed/,
    step: '1',
  },
  {
    what: 'a step that takes all memory',
    build: run('python3 -c "b=[bytearray(16<<20) for _ in range(400)]"'),
    message: /command failed/,
    step: '1',
  },
  {
    what: 'files that were never uploaded',
    copy: {},
    message: "failed to copy 'file' to '/opt/': its files were not uploaded",
    step: '1',
  },
  {
    what: 'a source that leads outwards',
    copy: { archive: good, source: '../../etc/shadow' },
    message: "COPY: the source '../../etc/shadow' leads out of the files of the build",
    step: '1',
  },
  {
    what: 'a source that the archive has not',
    copy: { archive: good, source: 'other' },
    message: "failed to copy 'other' to '/opt/': no file in the archive matches 'other'",
    step: '1',
  },
  {
    what: 'an archive that is none',
    copy: { archive: Buffer.alloc(5000, 7) },
    message: /this is not a tar archive, or it is damaged/,
    step: '1',
  },
  {
    what: 'an archive that is cut short',
    copy: { archive: tar([{ name: 'file', content: 'x'.repeat(2000) }]).subarray(0, 1500) },
    message: /the archive is cut short/,
    step: '1',
  },
  {
    what: 'damaged compression',
    copy: { archive: gzipSync(good).subarray(0, 60) },
    message: /the archive is not gzip, or it is damaged/,
    step: '1',
  },
  {
    what: 'an absolute path in the archive',
    copy: { archive: tar([{ name: '/etc/cron.d/evil', content: 'x' }]) },
    message: /the archive holds the absolute path '\/etc\/cron.d\/evil'/,
    step: '1',
  },
  {
    what: 'a path outwards in the archive',
    copy: { archive: tar([{ name: 'file/../../../evil', content: 'x' }]) },
    message: /the path 'file\/..\/..\/..\/evil', which leads outwards/,
    step: '1',
  },
  {
    what: 'a file written through a link of the archive',
    copy: {
      archive: tar([
        { name: 'd', type: '5' },
        { name: 'd/link', type: '2', link: '/etc' },
        { name: 'd/link/passwd', content: 'x' },
      ]),
      source: 'd',
    },
    message: /the archive writes through its own link/,
    step: '1',
  },
  {
    what: 'a hard link outwards',
    copy: { archive: tar([{ name: 'file', type: '1', link: 'etc/shadow' }]) },
    message: /is a hard link to 'etc\/shadow', which is not among what is copied/,
    step: '1',
  },
  {
    what: 'a device in the archive',
    copy: { archive: tar([{ name: 'file', type: '3' }]) },
    message: /holds 'file', which is no file, directory or link/,
    step: '1',
  },
  {
    what: 'an owner that does not exist',
    copy: { archive: good, owner: 'nobody-knows' },
    message: /invalid username: 'nobody-knows'/,
    step: '1',
  },
  {
    what: 'a mode that is none',
    copy: { archive: good, mode: '9999' },
    message: "COPY: '9999' is not a file mode",
    step: '1',
  },
  {
    what: 'a start command that dies',
    build: { fromTemplate: 'base', startCmd: 'exit 9', readyCmd: 'sleep 1' },
    message: 'start command failed: exit status 9',
    step: 'finalize',
  },
  {
    what: 'a start command that is never ready',
    build: { fromTemplate: 'base', startCmd: 'sleep 1000', readyCmd: 'echo not yet; false' },
    message: /the ready command was not content within 8 s: not yet/,
    step: 'finalize',
  },
];

/** What a service keeps on disk for builds. */
function kept(service: TestService): string[] {
  const names = (directory: string) => {
    try {
      return readdirSync(path.join(service.stateDir, directory)).map((name) => `${directory}/${name}`);
    } catch {
      return [];
    }
  };
  return ['layers', 'sandboxes', 'snapshots', 'images/fetching'].flatMap(names);
}

describeOnRuntimes(
  'a build with',
  (service) => {
    it.each(INPUTS)(
      '$what fails with a clear reason and leaves nothing',
      async ({ what, build, copy, message, step }) => {
        // The base's first sandbox is kept ready; it is no leftover.
        await expect.poll(async () => (await countLeftovers(service().stateDir)).directories).toBeLessThanOrEqual(1);
        const before = kept(service());
        const requested = await api(service(), 'POST', '/v3/templates', { name: 'bad', memoryMB: 256 });
        const ids = requested.body as { templateID: string; buildID: string };
        const hash = createHash('sha256').update(what).digest('hex');
        if (copy?.archive !== undefined) {
          const link = await api(service(), 'GET', `/templates/${ids.templateID}/files/${hash}`);
          await fetch((link.body as { url: string }).url, { method: 'PUT', body: new Uint8Array(copy.archive) });
        }
        const { source = 'file', destination = '/opt/', owner = '', mode = '' } = copy ?? {};
        const body = build ?? {
          fromTemplate: 'base',
          steps: [{ type: 'COPY', args: [source, destination, owner, mode], filesHash: hash }],
        };
        expect(
          (await api(service(), 'POST', `/v2/templates/${ids.templateID}/builds/${ids.buildID}`, body)).status,
        ).toBe(202);
        const ended = await endOfBuild(service(), ids);
        expect(ended.status).toBe('error');
        if (typeof message === 'string') expect(ended.reason?.message).toBe(message);
        else expect(ended.reason?.message).toMatch(message);
        expect(ended.reason?.step).toBe(step);
        const log = await api(service(), 'GET', `/templates/${ids.templateID}/builds/${ids.buildID}/logs?level=error`);
        expect((log.body as { logs: { message: string }[] }).logs.at(-1)?.message).toBe(
          `Build failed: ${ended.reason?.message}`,
        );
        // Of steps before the one that failed, the layers stay: they are right.
        const layers = (names: string[]) => names.filter((name) => name.startsWith('layers/s-')).length;
        expect(layers(kept(service())) - layers(before)).toBe(Number(step) > 1 ? Number(step) - 1 : 0);
        const other = (names: string[]) =>
          names.filter((name) => !name.startsWith('layers/s-') && !name.startsWith('sandboxes/'));
        expect(other(kept(service()))).toEqual(other(before));
      },
    );
  },
  { env: { SANDBAR_BUILD_STEP_SECONDS: '8', SANDBAR_DISK_SIZE_MB: '1024' } },
);
