import { createHash, randomBytes } from 'node:crypto';
import {
  AuthenticationError,
  FileNotFoundError,
  FileType,
  InvalidArgumentError,
  NotEnoughSpaceError,
  NotFoundError,
  SandboxError,
} from 'e2b';
import { describe, expect, it } from 'vitest';
import { describeInSandbox, failureOf } from '../support/sdk.ts';

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

/** A copy with a buffer of its own: the SDK takes ArrayBuffers. */
const arrayBuffer = (bytes: Uint8Array): ArrayBuffer => Uint8Array.from(bytes).buffer;

function streamOf(...pieces: Uint8Array[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(piece);
      controller.close();
    },
  });
}

describeInSandbox('files', ({ sandbox, fresh, shell, rootShell }) => {
  const files = () => sandbox().files;

  describe('write and read', () => {
    it('gives back a text as text, bytes, blob and stream', async () => {
      const file = `${await fresh()}/text`;
      const text = 'first line\nümlaut, 漢字 and 🙂\n';
      expect(await files().write(file, text)).toEqual({ name: 'text', path: file, type: FileType.FILE });
      expect(await files().read(file)).toBe(text);
      expect(await files().read(file, { format: 'text' })).toBe(text);
      expect(Buffer.from(await files().read(file, { format: 'bytes' })).toString()).toBe(text);
      const blob = await files().read(file, { format: 'blob' });
      expect(blob.size).toBe(Buffer.byteLength(text));
      expect(await blob.text()).toBe(text);
      const stream = await files().read(file, { format: 'stream' });
      expect(await new Response(stream).text()).toBe(text);
    });

    it('takes a string, an ArrayBuffer, a Blob and a stream', async () => {
      const directory = await fresh();
      const bytes = randomBytes(70_001);
      await files().write(`${directory}/string`, 'string');
      await files().write(`${directory}/buffer`, arrayBuffer(bytes));
      await files().write(`${directory}/blob`, new Blob([bytes]));
      await files().write(`${directory}/stream`, streamOf(bytes.subarray(0, 10), bytes.subarray(10)));
      expect(await files().read(`${directory}/string`)).toBe('string');
      for (const name of ['buffer', 'blob', 'stream'])
        expect(sha256(await files().read(`${directory}/${name}`, { format: 'bytes' }))).toBe(sha256(bytes));
    });

    it('replaces what a file held, also when the new content is shorter', async () => {
      const file = `${await fresh()}/file`;
      await files().write(file, 'a long first content');
      await files().write(file, 'short');
      expect(await files().read(file)).toBe('short');
    });

    it('keeps an empty file empty in every format', async () => {
      const file = `${await fresh()}/empty`;
      await files().write(file, '');
      expect(await files().read(file)).toBe('');
      expect(await files().read(file, { format: 'bytes' })).toEqual(new Uint8Array(0));
      expect((await files().read(file, { format: 'blob' })).size).toBe(0);
      expect(await new Response(await files().read(file, { format: 'stream' })).text()).toBe('');
      expect((await files().getInfo(file)).size).toBe(0);
      await files().write(file, streamOf());
      expect(await files().read(file)).toBe('');
    });

    it('makes the directories on the way, owned by the user', async () => {
      const directory = await fresh();
      const file = `${directory}/a/b/c/file`;
      await files().write(file, 'deep');
      expect(await files().read(file)).toBe('deep');
      expect(await shell(`stat -c '%U %a' ${directory}/a ${directory}/a/b ${file}`)).toBe(
        'user 755\nuser 755\nuser 644\n',
      );
    });

    it.each([
      ['multipart', {}],
      ['octet-stream', { useOctetStream: true }],
      ['gzip', { gzip: true }],
    ])('sends ten megabytes unharmed (%s)', async (_name, options) => {
      const file = `${await fresh()}/big`;
      const bytes = randomBytes(10 * 1024 * 1024);
      await files().write(file, arrayBuffer(bytes), options);
      expect(await shell(`sha256sum < ${file} | cut -c1-64`)).toBe(`${sha256(bytes)}\n`);
      expect(sha256(await files().read(file, { format: 'bytes' }))).toBe(sha256(bytes));
      expect(sha256(await files().read(file, { format: 'bytes', gzip: true }))).toBe(sha256(bytes));
      const stream = await files().read(file, { format: 'stream', gzip: true, streamIdleTimeoutMs: 10_000 });
      expect(sha256(new Uint8Array(await new Response(stream).arrayBuffer()))).toBe(sha256(bytes));
    });

    it('compresses a stream on the way when told so', async () => {
      const file = `${await fresh()}/zipped`;
      await files().write(file, streamOf(Buffer.alloc(300_000, 'a'), Buffer.from('end')), { gzip: true });
      expect(await shell(`wc -c < ${file}; tail -c 4 ${file}`)).toBe('300003\naend');
    });

    it('writes several files in one call, by multipart and by octet-stream', async () => {
      const directory = await fresh();
      const entries = ['one', 'deep/two', 'deep/three'].map((name) => ({ path: `${directory}/${name}`, data: name }));
      const written = await files().write(entries);
      expect(written.map((file) => file.path)).toEqual(entries.map((entry) => entry.path));
      for (const entry of entries) expect(await files().read(entry.path)).toBe(entry.data);

      const again = entries.map(({ path }) => ({ path, data: new Blob([`again ${path}`]) }));
      expect(await files().writeFiles(again, { useOctetStream: true })).toHaveLength(3);
      for (const { path } of again) expect(await files().read(path)).toBe(`again ${path}`);
      expect(await files().write([])).toEqual([]);
    });

    it('refuses two files on one path in one call', async () => {
      const path = `${await fresh()}/same`;
      const twice = files().write([
        { path, data: '1' },
        { path, data: '2' },
      ]);
      await expect(twice).rejects.toThrow(InvalidArgumentError);
    });

    it('stops a read and a write when the caller says so', async () => {
      const file = `${await fresh()}/file`;
      const aborted = AbortSignal.abort();
      await expect(files().write(file, 'x', { signal: aborted })).rejects.toThrow();
      await expect(files().read('/etc/passwd', { signal: aborted })).rejects.toThrow();
      expect(await files().exists(file)).toBe(false);
    });

    it('reads what the kernel makes up, though its size says nothing', async () => {
      expect(await files().read('/proc/self/status')).toMatch(/^Name:/);
    });

    it('frees the connection of a stream that is cancelled half way', async () => {
      const file = `${await fresh()}/large`;
      await shell(`head -c 30000000 /dev/zero > ${file}`);
      for (let round = 0; round < 15; round++) {
        const reader = (await files().read(file, { format: 'stream' })).getReader();
        expect((await reader.read()).value?.length).toBeGreaterThan(0);
        await reader.cancel();
      }
      expect(await files().read(file, { format: 'bytes' })).toHaveLength(30_000_000);
    });
  });

  describe('names', () => {
    it.each([
      'with space',
      'ünïcödé 漢字 🙂',
      '"quoted"',
      "it's",
      'back\\slash',
      'a%20b%',
      '#hash?query&amp=1+2',
      '-dash',
      '.hidden',
      'semi;colon',
      'comma, and = sign',
      '*star[1]',
      `${'n'.repeat(255)}`,
    ])('a file may be called %j', async (name) => {
      const directory = await fresh();
      const path = `${directory}/${name}`;
      for (const options of [{}, { useOctetStream: true }]) {
        const written = await files().write(path, `content of ${name}`, options);
        expect(written).toMatchObject({ name, path });
        expect(await files().read(path)).toBe(`content of ${name}`);
        expect(await files().exists(path)).toBe(true);
        expect((await files().list(directory)).map((entry) => entry.name)).toEqual([name]);
      }
      const moved = await files().rename(path, `${directory}/moved/${name}`);
      expect(moved).toMatchObject({ name, path: `${directory}/moved/${name}` });
      await files().remove(moved.path);
      expect(await files().list(`${directory}/moved`)).toEqual([]);
    });

    it('a line break in a name survives', async () => {
      const path = `${await fresh()}/two\nlines`;
      await files().write(path, 'x', { useOctetStream: true });
      expect(await files().read(path)).toBe('x');
      expect((await files().getInfo(path)).name).toBe('two\nlines');
    });
  });

  describe('paths and users', () => {
    it('takes a relative path from the home of the user', async () => {
      const written = await files().write('relative/file', 'here');
      expect(written.path).toBe('/home/user/relative/file');
      expect(await files().read('./relative/../relative/file')).toBe('here');
      expect(await files().exists('relative')).toBe(true);
      await files().remove('relative');
      expect(await files().exists('/home/user/relative')).toBe(false);
    });

    it('takes ~ for the home of the user, and refuses that of another', async () => {
      expect((await files().write('~/tilde', 'x')).path).toBe('/home/user/tilde');
      expect((await files().getInfo('~')).path).toBe('/home/user');
      expect((await files().getInfo('~/tilde', { user: 'user' })).owner).toBe('user');
      await expect(files().read('~root/x')).rejects.toThrow(InvalidArgumentError);
      await expect(files().getInfo('~root/x')).rejects.toThrow(/cannot expand user-specific home dir/);
    });

    it('takes an empty path for the working directory', async () => {
      expect((await files().getInfo('')).path).toBe('/home/user');
      expect((await files().list('')).map((entry) => entry.path)).toContain('/home/user/tilde');
    });

    it('gives what is made to the user who is named', async () => {
      const directory = await fresh();
      await files().write('made-by-root/file', 'x', { user: 'root' });
      await files().makeDir('made-by-root/dir', { user: 'root' });
      expect(await rootShell('stat -c "%U:%G" /root/made-by-root /root/made-by-root/file /root/made-by-root/dir')).toBe(
        'root:root\nroot:root\nroot:root\n',
      );
      // File operations are the sandbox's own: they are not stopped by permissions.
      await rootShell(`touch ${directory}/closed && chmod 600 ${directory}/closed`);
      await files().write(`${directory}/closed`, 'opened');
      expect(await shell(`stat -c "%U %a" ${directory}/closed; cat ${directory}/closed`)).toBe('user 600\nopened');
      expect((await files().list('~', { user: 'root' })).map((entry) => entry.path)).toContain('/root/made-by-root');
      await files().remove('made-by-root', { user: 'root' });
    });

    it('refuses a user who is not there', async () => {
      const user = 'nobody-here';
      await expect(files().read('/etc/passwd', { user })).rejects.toThrow(AuthenticationError);
      await expect(files().read('/etc/passwd', { user })).rejects.toThrow(
        "error looking up user 'nobody-here': user: unknown user nobody-here",
      );
      await expect(files().write('x', 'x', { user })).rejects.toThrow(AuthenticationError);
      for (const call of [
        () => files().list('/', { user }),
        () => files().getInfo('/', { user }),
        () => files().exists('/', { user }),
        () => files().makeDir('/x', { user }),
        () => files().remove('/x', { user }),
        () => files().rename('/x', '/y', { user }),
        () => files().watchDir('/', () => undefined, { user }),
      ]) {
        const error = await failureOf(call());
        expect(error).toBeInstanceOf(AuthenticationError);
        expect(error.message).toContain("invalid username: 'nobody-here'");
      }
    });
  });

  describe('list', () => {
    it('lists by depth, each directory before what it holds, in the order of names', async () => {
      const directory = await fresh();
      await shell(`cd ${directory} && mkdir -p b/inner/deepest a && touch b/file b/inner/x a/y .hidden z`);
      const paths = async (depth?: number) =>
        (await files().list(directory, depth === undefined ? {} : { depth })).map((entry) =>
          entry.path.slice(directory.length + 1),
        );
      expect(await paths()).toEqual(['.hidden', 'a', 'b', 'z']);
      expect(await paths(1)).toEqual(['.hidden', 'a', 'b', 'z']);
      expect(await paths(2)).toEqual(['.hidden', 'a', 'a/y', 'b', 'b/file', 'b/inner', 'z']);
      const whole = ['.hidden', 'a', 'a/y', 'b', 'b/file', 'b/inner', 'b/inner/deepest', 'b/inner/x', 'z'];
      expect(await paths(3)).toEqual(whole);
      expect(await paths(4_294_967_295)).toEqual(whole);
      await expect(files().list(directory, { depth: 0 })).rejects.toThrow('depth should be at least one');
    });

    it('says all about an entry', async () => {
      const directory = await fresh();
      await files().write(`${directory}/file`, '12345');
      await shell(`chmod 640 ${directory}/file; mkdir -m 1777 ${directory}/sticky; mkdir -m 2750 ${directory}/setgid`);
      const [file, setgid, sticky] = await files().list(directory);
      expect(file).toMatchObject({
        name: 'file',
        path: `${directory}/file`,
        type: FileType.FILE,
        size: 5,
        mode: 0o640,
        permissions: '-rw-r-----',
        owner: 'user',
        group: 'user',
      });
      expect(Math.abs(Date.now() - (file?.modifiedTime?.getTime() ?? 0))).toBeLessThan(60_000);
      expect(file?.symlinkTarget).toBeUndefined();
      expect(setgid).toMatchObject({ type: FileType.DIR, mode: 0o750, permissions: 'dgrwxr-x---' });
      expect(sticky).toMatchObject({ type: FileType.DIR, mode: 0o777, permissions: 'dtrwxrwxrwx' });
    });

    it('shows links as what they lead to, leaves out broken ones and enters none', async () => {
      const directory = await fresh();
      await shell(
        `cd ${directory} && mkdir real && echo abc > real/file && ln -s real to-dir && ln -s real/file to-file &&
         ln -s nowhere broken && ln -s loop loop && mkfifo pipe`,
      );
      const listed = await files().list(directory, { depth: 5 });
      expect(listed.map((entry) => entry.name)).toEqual(['real', 'file', 'to-dir', 'to-file']);
      const [, , toDir, toFile] = listed;
      expect(toDir).toMatchObject({
        type: FileType.DIR,
        permissions: 'Lrwxrwxrwx',
        symlinkTarget: `${directory}/real`,
      });
      expect(toFile).toMatchObject({ type: FileType.FILE, symlinkTarget: `${directory}/real/file` });
      // The size of a link is its own, its mode that of the target.
      expect(toFile?.size).toBe('real/file'.length);
      expect(toFile?.mode).toBe(0o644);
      const through = await files().list(`${directory}/to-dir`);
      expect(through.map((entry) => entry.path)).toEqual([`${directory}/to-dir/file`]);
    });

    it('holds ten thousand entries', async () => {
      const directory = await fresh();
      await shell(`cd ${directory} && seq -f 'entry-%05.0f' 1 10000 | xargs touch`);
      const listed = await files().list(directory);
      expect(listed).toHaveLength(10_000);
      expect(listed[0]?.name).toBe('entry-00001');
      expect(listed.at(-1)?.name).toBe('entry-10000');
    });

    it('fails for what is not a directory or not there', async () => {
      const directory = await fresh();
      await files().write(`${directory}/file`, '');
      await expect(files().list(`${directory}/file`)).rejects.toThrow(InvalidArgumentError);
      await expect(files().list(`${directory}/file`)).rejects.toThrow(`path is not a directory: ${directory}/file`);
      await expect(files().list(`${directory}/missing`)).rejects.toThrow(FileNotFoundError);
      await shell(`cd ${directory} && ln -s b a && ln -s a b`);
      const error = await failureOf(files().list(`${directory}/a`));
      expect(error).toBeInstanceOf(SandboxError);
      expect(error.message).toContain(`cyclic symlink or chain >255 links at "${directory}/a"`);
    });
  });

  describe('getInfo and exists', () => {
    it('tells files, directories and links apart', async () => {
      const directory = await fresh();
      await files().write(`${directory}/file`, 'abc');
      await shell(
        `cd ${directory} && ln -s file link && ln -s nowhere broken && touch -d '2001-02-03 04:05:06.5 UTC' old`,
      );
      expect(await files().getInfo(directory)).toMatchObject({ type: FileType.DIR, permissions: 'drwxr-xr-x' });
      expect(await files().getInfo(`${directory}/file`)).toMatchObject({ type: FileType.FILE, size: 3 });
      expect(await files().getInfo(`${directory}/link`)).toMatchObject({
        type: FileType.FILE,
        symlinkTarget: `${directory}/file`,
      });
      // A broken link is there, and is of no type.
      const broken = await files().getInfo(`${directory}/broken`);
      expect(broken.type).toBeUndefined();
      expect(broken.symlinkTarget).toBe(`${directory}/broken`);
      expect(await files().exists(`${directory}/broken`)).toBe(true);
      expect((await files().getInfo(`${directory}/old`)).modifiedTime?.toISOString()).toBe('2001-02-03T04:05:06.500Z');
    });

    it('shows owners without a name by their number', async () => {
      const file = `${await fresh()}/file`;
      await rootShell(`touch ${file}; chown 4321:8765 ${file}`);
      expect(await files().getInfo(file)).toMatchObject({ owner: '4321', group: '8765' });
    });

    it('says what is not there', async () => {
      const missing = `${await fresh()}/missing`;
      expect(await files().exists(missing)).toBe(false);
      const error = await failureOf(files().getInfo(missing));
      expect(error).toBeInstanceOf(FileNotFoundError);
      expect(error.message).toContain(`file not found: lstat ${missing}: no such file or directory`);
    });
  });

  describe('makeDir', () => {
    it('makes directories with their parents, once', async () => {
      const directory = `${await fresh()}/a/b`;
      expect(await files().makeDir(directory)).toBe(true);
      expect(await files().makeDir(directory)).toBe(false);
      expect(await shell(`stat -c '%U %a' ${directory}`)).toBe('user 755\n');
    });

    it('fails where a file stands in the way', async () => {
      const directory = await fresh();
      await files().write(`${directory}/file`, '');
      await expect(files().makeDir(`${directory}/file`)).rejects.toThrow(InvalidArgumentError);
      await expect(files().makeDir(`${directory}/file`)).rejects.toThrow(
        `path already exists but it is not a directory: ${directory}/file`,
      );
      await expect(files().makeDir(`${directory}/file/below`)).rejects.toThrow(SandboxError);
    });
  });

  describe('rename', () => {
    it('moves a file, makes the parents and overwrites', async () => {
      const directory = await fresh();
      await files().write(`${directory}/from`, 'new');
      await files().write(`${directory}/to`, 'old');
      const entry = await files().rename(`${directory}/from`, `${directory}/to`);
      expect(entry).toMatchObject({ name: 'to', path: `${directory}/to`, type: FileType.FILE, size: 3 });
      expect(await files().read(`${directory}/to`)).toBe('new');
      expect(await files().exists(`${directory}/from`)).toBe(false);
      await files().rename(`${directory}/to`, `${directory}/far/away/to`);
      expect(await shell(`stat -c %U ${directory}/far; cat ${directory}/far/away/to`)).toBe('user\nnew');
    });

    it('moves a directory with all it holds', async () => {
      const directory = await fresh();
      await files().write(`${directory}/dir/sub/file`, 'x');
      expect(await files().rename(`${directory}/dir`, `${directory}/moved`)).toMatchObject({ type: FileType.DIR });
      expect(await files().read(`${directory}/moved/sub/file`)).toBe('x');
    });

    it('fails for a missing source and for a directory that is not empty', async () => {
      const directory = await fresh();
      const error = await failureOf(files().rename(`${directory}/missing`, `${directory}/to`));
      expect(error).toBeInstanceOf(FileNotFoundError);
      expect(error.message).toContain('source file not found');
      await files().write(`${directory}/full/file`, '');
      await files().makeDir(`${directory}/other`);
      await expect(files().rename(`${directory}/other`, `${directory}/full`)).rejects.toThrow(/error renaming/);
      await files().write(`${directory}/plain`, '');
      await expect(files().rename(`${directory}/plain`, `${directory}/other`)).rejects.toThrow(/error renaming/);
      await expect(files().rename(`${directory}/full`, '/proc/x')).rejects.toThrow(SandboxError);
    });
  });

  describe('remove', () => {
    it('removes files, links and whole trees', async () => {
      const directory = await fresh();
      await files().write(`${directory}/tree/a/b/c`, '');
      await shell(`cd ${directory} && ln -s tree link`);
      await files().remove(`${directory}/link`);
      expect(await files().exists(`${directory}/tree/a/b/c`)).toBe(true);
      await rootShell(`mkdir ${directory}/tree/owned-by-root && touch ${directory}/tree/owned-by-root/x`);
      await files().remove(`${directory}/tree`);
      expect(await files().list(directory)).toEqual([]);
    });

    it('is content when there is nothing to remove', async () => {
      await files().remove(`${await fresh()}/missing`);
    });

    it('fails for what cannot be removed', async () => {
      await expect(files().remove('/proc/self')).rejects.toThrow(SandboxError);
    });
  });

  describe('metadata', () => {
    it('is kept with the file, by keys in lower case, and shown wherever the file is', async () => {
      const directory = await fresh();
      const metadata = { 'Content-Kind': 'report', origin: 'a test with spaces' };
      const kept = { 'content-kind': 'report', origin: 'a test with spaces' };
      const file = `${directory}/file`;
      expect((await files().write(file, 'x', { metadata })).metadata).toEqual(kept);
      expect((await files().getInfo(file)).metadata).toEqual(kept);
      expect((await files().list(directory))[0]?.metadata).toEqual(kept);
      expect((await files().rename(file, `${directory}/moved`)).metadata).toEqual(kept);
    });

    it('is replaced as a whole by the next upload', async () => {
      const directory = await fresh();
      const file = `${directory}/file`;
      await files().write(file, 'x', { metadata: { one: '1', two: '2' }, useOctetStream: true });
      await files().write(file, 'y', { metadata: { three: '3' } });
      expect((await files().getInfo(file)).metadata).toEqual({ three: '3' });
      await files().write(file, 'z');
      expect((await files().getInfo(file)).metadata).toBeUndefined();
    });

    it('goes to every file of a call', async () => {
      const directory = await fresh();
      const entries = ['a', 'b'].map((name) => ({ path: `${directory}/${name}`, data: name }));
      const written = await files().writeFiles(entries, { metadata: { batch: '7' } });
      expect(written.map((file) => file.metadata)).toEqual([{ batch: '7' }, { batch: '7' }]);
      for (const { path } of entries) expect((await files().getInfo(path)).metadata).toEqual({ batch: '7' });
    });

    it('is refused when it is too large or not plain text', async () => {
      const file = `${await fresh()}/file`;
      await expect(files().write(file, 'x', { metadata: { key: 'ü' } })).rejects.toThrow(InvalidArgumentError);
      await expect(files().write(file, 'x', { metadata: { key: 'v'.repeat(5000) } })).rejects.toThrow(
        InvalidArgumentError,
      );
      await expect(files().write(file, 'x', { metadata: { ['k'.repeat(300)]: 'v' } })).rejects.toThrow(
        InvalidArgumentError,
      );
    });

    it('shows attributes that a program in the sandbox has set', async () => {
      const file = `${await fresh()}/file`;
      await shell(`python3 -c "import os; open('${file}', 'w'); os.setxattr('${file}', 'user.e2b.by', b'program')"`);
      expect((await files().getInfo(file)).metadata).toEqual({ by: 'program' });
    });
  });

  describe('errors', () => {
    it('of reading: not found, a directory', async () => {
      const directory = await fresh();
      const missing = await failureOf(files().read(`${directory}/missing`));
      expect(missing).toBeInstanceOf(FileNotFoundError);
      expect(missing).toBeInstanceOf(NotFoundError);
      expect(missing.message).toContain(`path '${directory}/missing' does not exist`);
      await expect(files().read(`${directory}/missing`, { format: 'stream' })).rejects.toThrow(FileNotFoundError);
      await expect(files().read(directory)).rejects.toThrow(InvalidArgumentError);
      await expect(files().read(directory)).rejects.toThrow(`path '${directory}' is a directory`);
    });

    it('of writing: a directory, a parent that is a file', async () => {
      const directory = await fresh();
      await expect(files().write(directory, 'x')).rejects.toThrow(InvalidArgumentError);
      await expect(files().write(directory, 'x')).rejects.toThrow(`path is a directory: ${directory}`);
      await files().write(`${directory}/file`, '');
      await expect(files().write(`${directory}/file/below`, 'x')).rejects.toThrow(/path is a file/);
      await expect(files().write(`${directory}/${'n'.repeat(256)}`, 'x')).rejects.toThrow();
    });
  });
});

describeInSandbox(
  'files on a small disk',
  ({ sandbox, shell }) => {
    it('says that the disk is full, and goes on once there is room', async () => {
      const { files } = sandbox();
      const bytes = new Blob([randomBytes(80 * 1024 * 1024)]);
      for (const options of [{}, { useOctetStream: true }]) {
        await expect(files.write('/home/user/big', bytes, options)).rejects.toThrow(NotEnoughSpaceError);
        await files.remove('/home/user/big');
        await files.write('/home/user/small', 'fits');
        expect(await shell('cat /home/user/small')).toBe('fits');
      }
    });
  },
  { service: { env: { SANDBAR_DISK_SIZE_MB: '64' } } },
);
