import { setTimeout as sleep } from 'node:timers/promises';
import {
  FileNotFoundError,
  type FilesystemEvent,
  FilesystemEventType,
  FileType,
  InvalidArgumentError,
  type Sandbox,
  TimeoutError,
} from 'e2b';
import { expect, it } from 'vitest';
import { describeInSandbox } from '../support/sdk.ts';

type WatchOpts = NonNullable<Parameters<Sandbox['files']['watchDir']>[2]>;

const { CREATE, WRITE, REMOVE, RENAME, CHMOD } = FilesystemEventType;

describeInSandbox('watchDir', ({ sandbox, fresh, shell }) => {
  const files = () => sandbox().files;

  async function watch(directory: string, options: WatchOpts = {}) {
    const events: FilesystemEvent[] = [];
    const handle = await files().watchDir(directory, (event) => void events.push(event), options);
    const seen = () => events.map((event) => `${event.type} ${event.name}`);
    /** Waits until all of these have come, in this order, whatever came between them. */
    const inOrder = async (...wanted: string[]) => {
      await expect
        .poll(
          () => {
            let next = 0;
            for (const event of seen()) if (event === wanted[next]) next++;
            return wanted.slice(next);
          },
          { timeout: 10_000, interval: 20 },
        )
        .toEqual([]);
    };
    return { events, seen, inOrder, stop: () => handle.stop() };
  }

  it('tells of files that are created, written, changed in mode, renamed and removed', async () => {
    const directory = await fresh();
    const watching = await watch(directory);
    await shell(`cd ${directory} && echo x > file && chmod 600 file && mv file other && rm other`);
    await watching.inOrder(
      `${CREATE} file`,
      `${WRITE} file`,
      `${CHMOD} file`,
      `${RENAME} file`,
      `${CREATE} other`,
      `${REMOVE} other`,
    );
    await watching.stop();
  });

  it('tells of what the SDK itself does', async () => {
    const directory = await fresh();
    const watching = await watch(directory);
    await files().write(`${directory}/file`, 'x');
    await files().makeDir(`${directory}/dir`);
    await files().rename(`${directory}/file`, `${directory}/moved`);
    await files().remove(`${directory}/moved`);
    await watching.inOrder(
      `${CREATE} file`,
      `${WRITE} file`,
      `${CREATE} dir`,
      `${RENAME} file`,
      `${CREATE} moved`,
      `${REMOVE} moved`,
    );
    await watching.stop();
  });

  it('looks below only when it is told to', async () => {
    const directory = await fresh();
    await files().makeDir(`${directory}/sub`);
    const flat = await watch(directory);
    const deep = await watch(directory, { recursive: true });
    await files().write(`${directory}/sub/inner`, 'x');
    await files().write(`${directory}/outer`, 'x');
    await flat.inOrder(`${CREATE} outer`);
    await deep.inOrder(`${CREATE} sub/inner`, `${WRITE} sub/inner`, `${CREATE} outer`);
    expect(flat.seen().some((event) => event.endsWith('sub/inner'))).toBe(false);
    await flat.stop();
    await deep.stop();
  });

  it('takes in directories that appear later, however deep', async () => {
    const directory = await fresh();
    const watching = await watch(directory, { recursive: true });
    await files().makeDir(`${directory}/new`);
    await watching.inOrder(`${CREATE} new`);
    await files().makeDir(`${directory}/new/deeper`);
    await watching.inOrder(`${CREATE} new/deeper`);
    await files().write(`${directory}/new/deeper/file`, 'x');
    await watching.inOrder(`${CREATE} new/deeper/file`, `${WRITE} new/deeper/file`);
    await files().rename(`${directory}/new`, `${directory}/renamed`);
    await watching.inOrder(`${RENAME} new`, `${CREATE} renamed`);
    await files().write(`${directory}/renamed/deeper/file2`, 'x');
    await watching.inOrder(`${CREATE} renamed/deeper/file2`);
    await watching.stop();
  });

  it('adds the entry when it is asked for, and not otherwise', async () => {
    const directory = await fresh();
    const plain = await watch(directory);
    const watching = await watch(directory, { includeEntry: true, recursive: true });
    await files().write(`${directory}/file`, '12345');
    await watching.inOrder(`${CREATE} file`, `${WRITE} file`);
    await files().remove(`${directory}/file`);
    await watching.inOrder(`${REMOVE} file`);
    await plain.inOrder(`${REMOVE} file`);
    const written = watching.events.filter((event) => event.type === WRITE).at(-1);
    expect(written?.entry).toMatchObject({
      name: 'file',
      path: `${directory}/file`,
      type: FileType.FILE,
      owner: 'user',
      permissions: '-rw-r--r--',
    });
    expect(watching.events.find((event) => event.type === REMOVE)?.entry).toBeUndefined();
    expect(plain.events.every((event) => event.entry === undefined)).toBe(true);
    await plain.stop();
    await watching.stop();
  });

  it('loses none of a thousand files', async () => {
    const directory = await fresh();
    const watching = await watch(directory, { timeoutMs: 0 });
    await shell(`cd ${directory} && for i in $(seq 1 1000); do : > f$i; done`);
    await expect
      .poll(() => new Set(watching.seen().filter((event) => event.startsWith(CREATE))).size, { timeout: 20_000 })
      .toBe(1000);
    await watching.stop();
  });

  it('says nothing more once it is stopped, and tells onExit', async () => {
    const directory = await fresh();
    const exits: (Error | undefined)[] = [];
    const watching = await watch(directory, { onExit: (error) => void exits.push(error) });
    await files().write(`${directory}/before`, 'x');
    await watching.inOrder(`${CREATE} before`);
    await watching.stop();
    await expect.poll(() => exits.length).toBe(1);
    const told = watching.events.length;
    await files().write(`${directory}/after`, 'x');
    await sleep(300);
    expect(watching.events).toHaveLength(told);
  });

  it('ends at its timeout with an error', async () => {
    const exits: (Error | undefined)[] = [];
    const begun = Date.now();
    await watch(await fresh(), { timeoutMs: 700, onExit: (error) => void exits.push(error) });
    await expect.poll(() => exits.length, { timeout: 5000 }).toBe(1);
    expect(exits[0]).toBeInstanceOf(TimeoutError);
    expect(Date.now() - begun).toBeGreaterThanOrEqual(650);
    expect(Date.now() - begun).toBeLessThan(3000);
  });

  it('gives each of many watchers everything', async () => {
    const directory = await fresh();
    const watchers = await Promise.all(Array.from({ length: 20 }, () => watch(directory)));
    await files().write(`${directory}/shared`, 'x');
    for (const watching of watchers) await watching.inOrder(`${CREATE} shared`, `${WRITE} shared`);
    for (const watching of watchers) await watching.stop();
  });

  it('takes the path from the home of the user who is named', async () => {
    await files().makeDir('watched-by-root', { user: 'root' });
    const watching = await watch('watched-by-root', { user: 'root' });
    await files().write('/root/watched-by-root/file', 'x', { user: 'root' });
    await watching.inOrder(`${CREATE} file`);
    await watching.stop();
    await files().remove('/root/watched-by-root');
  });

  it('fails for what is missing or not a directory', async () => {
    const directory = await fresh();
    await expect(watch(`${directory}/missing`)).rejects.toThrow(FileNotFoundError);
    await expect(watch(`${directory}/missing`)).rejects.toThrow(`path ${directory}/missing not found`);
    await files().write(`${directory}/file`, '');
    await expect(watch(`${directory}/file`)).rejects.toThrow(InvalidArgumentError);
    await expect(watch(`${directory}/file`)).rejects.toThrow(`path ${directory}/file not a directory`);
  });

  it('goes on when network mounts are allowed on a directory that is none', async () => {
    const directory = await fresh();
    const watching = await watch(directory, { allowNetworkMounts: true });
    await files().write(`${directory}/file`, 'x');
    await watching.inOrder(`${CREATE} file`);
    await watching.stop();
  });
});
