import { setTimeout as sleep } from 'node:timers/promises';
import { type FilesystemEvent, FilesystemEventType } from 'e2b';
import { describe, expect, it } from 'vitest';
import { times } from '../support/full.ts';
import { describeInSandbox } from '../support/sdk.ts';

const ROUNDS = times(6, 50);

// The parts that depend on timing, over and over.
describeInSandbox('races', ({ sandbox, fresh, shell }) => {
  const rounds = Array.from({ length: ROUNDS }, (_, index) => index + 1);

  describe.each(rounds)('round %i', (round) => {
    it('a watch tells of everything that happens right after it was begun', async () => {
      const directory = await fresh();
      const events: FilesystemEvent[] = [];
      const watch = await sandbox().files.watchDir(directory, (event) => void events.push(event), { recursive: true });
      await shell(
        `cd ${directory} && mkdir -p a && echo 1 > a/x; for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > f$i; done; mv f1 g1; rm f2`,
      );
      const has = (type: FilesystemEventType, name: string) =>
        events.some((event) => event.type === type && event.name === name);
      await expect
        .poll(
          () =>
            [
              has(FilesystemEventType.CREATE, 'a'),
              ...Array.from({ length: 10 }, (_, index) => has(FilesystemEventType.CREATE, `f${index + 1}`)),
              has(FilesystemEventType.RENAME, 'f1'),
              has(FilesystemEventType.CREATE, 'g1'),
              has(FilesystemEventType.REMOVE, 'f2'),
            ].every(Boolean),
          { timeout: 10_000, interval: 20 },
        )
        .toBe(true);
      await watch.stop();
    });

    it('a command that is left and taken over loses nothing from then on', async () => {
      const command = await sandbox().commands.run('while read -r line; do echo "<$line>"; done', {
        background: true,
        stdin: true,
      });
      await sandbox().commands.sendStdin(command.pid, 'before\n');
      await command.disconnect();
      if (round % 2 === 0) await sleep(Math.random() * 50);
      const again = await sandbox().commands.connect(command.pid);
      for (let index = 0; index < 5; index++) await sandbox().commands.sendStdin(command.pid, `${index}\n`);
      await sandbox().commands.closeStdin(command.pid);
      const { stdout } = await again.wait();
      expect(stdout.replace('<before>\n', '')).toBe('<0>\n<1>\n<2>\n<3>\n<4>\n');
    });

    it('a command that is killed in the middle of its output ends at once, in order', async () => {
      const command = await sandbox().commands.run('exec seq 1 100000000', { background: true });
      await expect.poll(() => command.stdout.length, { interval: 5 }).toBeGreaterThan(0);
      if (round % 2 === 0) await sleep(Math.random() * 100);
      expect(await command.kill()).toBe(true);
      await expect(command.wait()).rejects.toMatchObject({ exitCode: -1, error: 'signal: killed' });
      const lines = command.stdout.split('\n');
      for (const at of [1, 10, Math.floor(lines.length / 2), lines.length - 1])
        if (at < lines.length) expect(lines[at - 1]).toBe(String(at));
    });

    it('a command that ends while somebody connects is seen to end', async () => {
      const command = await sandbox().commands.run('sleep 0.05; exit 3', { background: true });
      await sleep(Math.random() * 120);
      const again = await sandbox().commands.connect(command.pid);
      await expect(again.wait()).rejects.toMatchObject({ exitCode: 3 });
      await expect(command.wait()).rejects.toMatchObject({ exitCode: 3 });
    });

    it('output that is written right before the end is not lost', async () => {
      const results = await Promise.all(
        Array.from({ length: 10 }, (_, index) => sandbox().commands.run(`printf '%s' ${'x'.repeat(1000)}${index}`)),
      );
      for (const [index, { stdout }] of results.entries()) expect(stdout).toBe(`${'x'.repeat(1000)}${index}`);
    });
  });
});
