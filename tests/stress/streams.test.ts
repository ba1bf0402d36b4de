import { createHash } from 'node:crypto';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { frame, frames } from '../support/connect-frames.ts';
import { residentBytes } from '../support/memory.ts';
import { describeRaw, eventOf, type OpenStream, outcomeOf, pidOf, type RawSandbox } from '../support/raw.ts';

const PROCESSES = 200;
const LINES = 20_000;
const MIB = 1024 * 1024;

const bash = (command: string) => ({ process: { cmd: '/bin/bash', args: ['-c', command] } });

describeRaw('streams', (sandbox, runtime) => {
  it(`${PROCESSES} processes stream at once and not a byte is lost`, { timeout: 240_000 }, async () => {
    const streams: { stream: OpenStream; pid: number }[] = [];
    for (let at = 0; at < PROCESSES; at += 20) {
      streams.push(
        ...(await Promise.all(
          Array.from({ length: 20 }, async (_, index) => {
            const stream = await sandbox().open(
              'process.Process/Start',
              bash(`read; seq -f '${at + index} %.0f' 1 ${LINES}`),
            );
            return { stream, pid: pidOf(await stream.next()) };
          }),
        )),
      );
    }
    const begun = Date.now();
    const wholes = streams.map(async ({ stream }) => outcomeOf(await stream.rest()));
    await Promise.all(
      streams.map(({ pid }) =>
        sandbox().ask('process.Process/SendInput', { process: { pid }, input: { stdin: 'Cg==' } }),
      ),
    );
    let bytes = 0;
    for (const [index, whole] of (await Promise.all(wholes)).entries()) {
      const expected = Array.from({ length: LINES }, (_, line) => `${index} ${line + 1}\n`).join('');
      expect(whole.stdout.length).toBe(expected.length);
      expect(whole.stdout === expected, `output of process ${index}`).toBe(true);
      expect(whole.end).toMatchObject({ exited: true });
      bytes += expected.length;
    }
    const seconds = (Date.now() - begun) / 1000;
    console.log(`${runtime}: ${PROCESSES} streams, ${(bytes / MIB).toFixed(0)} MiB in ${seconds.toFixed(1)} s`);
  });

  it('a subscriber that stops reading holds back its own process, and nobody else', { timeout: 120_000 }, async () => {
    const { service } = sandbox();
    const before = residentBytes(service.pid);
    const lines = 6_000_000;
    const lazy = await openLazily(sandbox(), `seq 1 ${lines}; touch /tmp/seq-done`);
    await sleep(2000);

    // Others go on as if it were not there.
    const begun = Date.now();
    expect((await sandbox().run('echo quick')).stdout).toBe('quick\n');
    expect(Date.now() - begun).toBeLessThan(3000);
    const other = await sandbox().run('seq 1 1000000');
    expect(other.stdout.endsWith('\n1000000\n')).toBe(true);
    // A second subscriber of the same process waits with the first, or it would miss nothing only by luck.
    expect((await sandbox().run('test -e /tmp/seq-done && echo done || echo held')).stdout).toBe('held\n');
    // Longer than any sign of life between the service and the agent takes.
    await sleep(12_000);
    expect((await sandbox().run('test -e /tmp/seq-done && echo done || echo held')).stdout).toBe('held\n');
    expect(residentBytes(service.pid) - before).toBeLessThan(80 * MIB);

    // When it reads again, it gets all of it.
    const hash = createHash('sha256');
    let ended = false;
    for await (const one of frames(lazy)) {
      const data = eventOf(one)['data']?.['stdout'];
      if (typeof data === 'string') hash.update(Buffer.from(data, 'base64'));
      if (eventOf(one)['end'] !== undefined) ended = true;
    }
    expect(ended).toBe(true);
    const expected = createHash('sha256');
    for (let from = 1; from <= lines; from += 100_000)
      expected.update(Array.from({ length: 100_000 }, (_, index) => `${from + index}\n`).join(''));
    expect(hash.digest('hex')).toBe(expected.digest('hex'));
  });
});

/** A process stream whose answer is not read until somebody does. */
async function openLazily(sandbox: RawSandbox, command: string): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      `${sandbox.service.url}/process.Process/Start`,
      {
        method: 'POST',
        headers: {
          ...sandbox.headers,
          'content-type': 'application/connect+json',
          'connect-protocol-version': '1',
        },
      },
      (response) => {
        response.pause();
        resolve(response);
      },
    );
    request.on('error', reject);
    request.end(frame({ process: { cmd: '/bin/bash', args: ['-c', command] }, stdin: false }));
  });
}
