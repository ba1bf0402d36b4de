import { expect, test } from 'vitest';
import type { OutputChunk } from '../agent/contract.ts';
import { dataEvents } from './process-events.ts';

const chunk = (stream: OutputChunk['stream'], text: string): OutputChunk => ({ stream, data: Buffer.from(text) });
const told = (chunks: OutputChunk[]) =>
  [...dataEvents(chunks)].map(({ event }) => {
    if (event?.case !== 'data' || event.value.output?.value === undefined) throw new Error('not a data event');
    return [event.value.output.case, Buffer.from(event.value.output.value).toString()];
  });

test('neighbours of one stream are joined, the order among streams is kept', () => {
  expect(told([chunk('stdout', 'a'), chunk('stdout', 'b'), chunk('stderr', 'c'), chunk('stdout', 'd')])).toEqual([
    ['stdout', 'ab'],
    ['stderr', 'c'],
    ['stdout', 'd'],
  ]);
});

test('events stay small', () => {
  const big = 'x'.repeat(60_000);
  expect(told([chunk('pty', big), chunk('pty', big)]).map(([, text]) => text?.length)).toEqual([60_000, 60_000]);
});

test('no output, no event', () => {
  expect(told([])).toEqual([]);
});
