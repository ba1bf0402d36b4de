import { createCipheriv, createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { times } from '../support/full.ts';
import { peakResidentBytes, residentBytes } from '../support/memory.ts';
import { describeInSandbox } from '../support/sdk.ts';

const MIB = 1024 * 1024;
const SIZE_MIB = times(300, 5 * 1024);
const ALLOWED_GROWTH_MIB = 50;

/** Bytes that do not compress and are the same every time, as fast as they are taken; hashed on the way. */
function pseudoRandom(sizeMib: number) {
  const cipher = createCipheriv('aes-128-ctr', Buffer.alloc(16, 7), Buffer.alloc(16));
  const zeros = Buffer.alloc(MIB);
  const hash = createHash('sha256');
  let made = 0;
  const stream = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (made++ === sizeMib) return controller.close();
        const piece = cipher.update(zeros);
        hash.update(piece);
        controller.enqueue(piece);
      },
    },
    { highWaterMark: 1 },
  );
  return { stream, digest: () => hash.digest('hex') };
}

describeInSandbox('a large file', ({ sandbox, service, shell, runtime }) => {
  it(`${SIZE_MIB} MiB go up and come down unharmed, and the service keeps nothing of them`, {
    timeout: 900_000,
  }, async () => {
    const { files } = sandbox();
    const path = '/home/user/large';
    const seconds = async <T>(work: () => Promise<T>) => {
      const begun = Date.now();
      return [await work(), (Date.now() - begun) / 1000] as const;
    };
    const upload = async (sizeMib: number) => {
      const { stream, digest } = pseudoRandom(sizeMib);
      await files.write(path, stream, { requestTimeoutMs: 0 });
      return digest();
    };
    const download = async () => {
      const hash = createHash('sha256');
      const stream = await files.read(path, { format: 'stream', requestTimeoutMs: 0 });
      for await (const piece of stream as unknown as AsyncIterable<Uint8Array>) hash.update(piece);
      return hash.digest('hex');
    };
    // Idle is the service after it has done all of this once, small.
    const small = await upload(20);
    expect(await download()).toBe(small);
    await sleep(1000);
    const idle = residentBytes(service().pid);

    const up = await peakResidentBytes(service().pid, () => seconds(() => upload(SIZE_MIB)));
    const [sent, upSeconds] = up.result;
    const inside = (await sandbox().commands.run(`sha256sum < ${path}`, { timeoutMs: 0 })).stdout.slice(0, 64);
    expect(inside).toBe(sent);
    const down = await peakResidentBytes(service().pid, () => seconds(download));
    const [received, downSeconds] = down.result;
    expect(received).toBe(sent);
    const growth = (peak: number) => (peak - idle) / MIB;
    console.log(
      `${runtime}: ${SIZE_MIB} MiB up in ${upSeconds.toFixed(1)} s (${(SIZE_MIB / upSeconds).toFixed(0)} MiB/s), ` +
        `down in ${downSeconds.toFixed(1)} s (${(SIZE_MIB / downSeconds).toFixed(0)} MiB/s); service idle ${(idle / MIB).toFixed(0)} MiB, ` +
        `at most +${growth(up.peak).toFixed(0)} up, +${growth(down.peak).toFixed(0)} down`,
    );
    expect(growth(up.peak)).toBeLessThan(ALLOWED_GROWTH_MIB);
    expect(growth(down.peak)).toBeLessThan(ALLOWED_GROWTH_MIB);
    await shell(`rm ${path}`);
  });
});
