import type { MessageInitShape } from '@bufbuild/protobuf';
import type { ProcessEventSchema } from '../../proto/gen/process_pb.js';
import type { OutputChunk, ProcessEnd } from '../agent/contract.ts';
import { exitStatusOf } from './exit-status.ts';

export type ProcessEventInit = MessageInitShape<typeof ProcessEventSchema>;

/** Most bytes in one data event. */
const MAX_EVENT_BYTES = 64 * 1024;

export function startEvent(pid: number): ProcessEventInit {
  return { event: { case: 'start', value: { pid } } };
}

export function keepaliveEvent(): ProcessEventInit {
  return { event: { case: 'keepalive', value: {} } };
}

export function endEvent(end: ProcessEnd): ProcessEventInit {
  const { exitCode, exited, status, error } = exitStatusOf(end);
  return { event: { case: 'end', value: { exitCode, exited, status, ...(error !== undefined && { error }) } } };
}

/** Output as events. Neighbours of one stream are joined: a program that prints line by line does not cost an event a line. */
export function* dataEvents(chunks: readonly OutputChunk[]): Generator<ProcessEventInit> {
  let run: OutputChunk[] = [];
  let size = 0;
  for (const chunk of chunks) {
    if (run.length > 0 && (run[0]?.stream !== chunk.stream || size + chunk.data.length > MAX_EVENT_BYTES)) {
      yield dataEvent(run);
      run = [];
      size = 0;
    }
    run.push(chunk);
    size += chunk.data.length;
  }
  if (run.length > 0) yield dataEvent(run);
}

function dataEvent(run: readonly OutputChunk[]): ProcessEventInit {
  const [first] = run;
  const value = run.length === 1 && first ? first.data : Buffer.concat(run.map((chunk) => chunk.data));
  return { event: { case: 'data', value: { output: { case: first?.stream ?? 'stdout', value } } } };
}
