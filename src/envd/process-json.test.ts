import { create, toJson } from '@bufbuild/protobuf';
import { expect, test } from 'vitest';
import { StartResponseSchema } from '../../proto/gen/process_pb.js';
import { endEvent, keepaliveEvent, type ProcessEventInit, startEvent } from './process-events.ts';
import { encodeProcessEvent } from './process-json.ts';

const data = (output: 'stdout' | 'stderr' | 'pty', bytes: Buffer): ProcessEventInit => ({
  event: { case: 'data', value: { output: { case: output, value: bytes } } },
});

test.each([
  [startEvent(42)],
  [keepaliveEvent()],
  [endEvent({ exitCode: 0, signal: 0, deadlineHit: false })],
  [endEvent({ exitCode: 3, signal: 0, deadlineHit: false })],
  [endEvent({ exitCode: -1, signal: 9, deadlineHit: false })],
  [data('stdout', Buffer.from('hällo'))],
  [data('stderr', Buffer.from([0, 255, 1]))],
  [data('pty', Buffer.alloc(70_000, 9))],
])('is what protobuf would write: %o', (event) => {
  const bytes = encodeProcessEvent(event);
  expect(bytes[0]).toBe(0);
  expect(bytes.readUInt32BE(1)).toBe(bytes.length - 5);
  expect(JSON.parse(bytes.subarray(5).toString())).toEqual(
    toJson(StartResponseSchema, create(StartResponseSchema, { event })),
  );
});
