import { expect, test } from 'vitest';
import { exitStatusOf } from './exit-status.ts';

const end = (exitCode: number, signal = 0) => ({ exitCode, signal, deadlineHit: false });

test('a success has no error', () => {
  expect(exitStatusOf(end(0))).toEqual({ exitCode: 0, exited: true, status: 'exit status 0', error: undefined });
});

test('a failure repeats its status as the error', () => {
  expect(exitStatusOf(end(3))).toEqual({ exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' });
});

test.each([
  [9, 'signal: killed'],
  [15, 'signal: terminated'],
  [34, 'signal: signal 34'],
])('signal %i is told as %s', (signal, status) => {
  expect(exitStatusOf(end(-1, signal))).toEqual({ exitCode: -1, exited: false, status, error: status });
});
