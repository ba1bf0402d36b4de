import { expect, test } from 'vitest';
import { encodeHeader, FrameDecoder, type FrameSink, MAX_PAYLOAD_BYTES } from './frame.ts';

function recorder(stopAfter = Infinity): { sink: FrameSink; frames: { type: number; payload: string }[] } {
  const frames: { type: number; payload: string }[] = [];
  const sink: FrameSink = {
    header: (type) => frames.push({ type, payload: '' }),
    piece: (bytes) => {
      frames[frames.length - 1]!.payload += bytes.toString();
    },
    end: () => frames.length < stopAfter,
  };
  return { sink, frames };
}

const frame = (type: number, payload: string) =>
  Buffer.concat([encodeHeader(type, payload.length), Buffer.from(payload)]);

test('frames are found whatever the pieces they arrive in', () => {
  const bytes = Buffer.concat([frame(1, 'first'), frame(0, ''), frame(2, 'third')]);
  for (let size = 1; size <= bytes.length; size++) {
    const { sink, frames } = recorder();
    const decoder = new FrameDecoder(sink);
    for (let at = 0; at < bytes.length; at += size) decoder.push(bytes.subarray(at, at + size));
    expect(frames).toEqual([
      { type: 1, payload: 'first' },
      { type: 0, payload: '' },
      { type: 2, payload: 'third' },
    ]);
  }
});

test('what follows the last frame of a connection that became a tunnel is left alone', () => {
  const { sink, frames } = recorder(1);
  const decoder = new FrameDecoder(sink);
  const consumed = decoder.push(Buffer.concat([frame(0, ''), Buffer.from('raw bytes')]));
  expect(consumed).toBe(5);
  expect(frames).toHaveLength(1);
});

test('a frame longer than the protocol allows is an error', () => {
  const decoder = new FrameDecoder(recorder().sink);
  expect(() => decoder.push(encodeHeader(0, MAX_PAYLOAD_BYTES + 1))).toThrow(/too long/);
});
