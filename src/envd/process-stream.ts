import { randomInt } from 'node:crypto';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Agent, OutputBatch, ProcessRef, StartOptions } from '../agent/contract.ts';
import { Silence } from './keepalive.ts';
import { dataEvents, endEvent, keepaliveEvent, type ProcessEventInit, startEvent } from './process-events.ts';

/** Output asked for at a time. */
const BATCH_BYTES = 256 * 1024;
/** A read waits no longer than this, so that a dead way to the sandbox is noticed. */
const MAX_WAIT_MS = 30_000;
/** The agent forgets a subscriber after 10 s without a read; a client that is slow to take its output must not be forgotten. */
const HOLD_EVERY_MS = 4_000;

const FORGET_AFTER_MS = 100;

/** A subscription to the output of one process. */
export interface Subscription {
  agent: Agent;
  subscriber: number;
  /** How long the stream may be silent. */
  keepaliveMs: number;
  /** Ends the stream, not the process. */
  signal: AbortSignal;
}

/** A subscription in use: its signal also aborts when it is left. */
interface Reading extends Subscription {
  leave(): void;
}

/** Nobody sees it: made once, since an error is slow to make. */
const LEFT = new ConnectError('the stream was left', Code.Canceled);

function readingOf(subscription: Subscription): Reading {
  const left = new AbortController();
  const signal = AbortSignal.any([subscription.signal, left.signal]);
  return { ...subscription, signal, leave: () => left.abort(LEFT) };
}

/** A subscriber's name: any number but 0 that no other has. */
export function newSubscriber(): number {
  return randomInt(1, 2 ** 47);
}

/** Starts a process; resolves when it runs, with its events. At the process's deadline they fail instead of ending. */
export async function startProcess(
  subscription: Subscription,
  options: StartOptions,
): Promise<AsyncGenerator<ProcessEventInit>> {
  const reading = readingOf(subscription);
  const read = { length: BATCH_BYTES, waitMs: Math.min(reading.keepaliveMs, MAX_WAIT_MS) };
  const start = { ...options, subscriber: reading.subscriber };
  const { pid, output } = await reading.agent.startAndRead(start, read, reading.signal);
  return eventsFromStart(reading, pid, output);
}

async function* eventsFromStart(
  reading: Reading,
  pid: number,
  output: Promise<OutputBatch>,
): AsyncGenerator<ProcessEventInit> {
  const nothingYet: OutputBatch = { pid, offset: 0, nextOffset: 0, chunks: [], lost: 0, end: undefined };
  for await (const event of events(reading, nothingYet, output)) {
    if (event === 'deadline') throw new ConnectError('the process was killed at its deadline', Code.DeadlineExceeded);
    yield event;
  }
}

/** Events of a process that runs already: the output from now on, or, to replay, from the oldest byte the agent still holds. */
export async function* eventsFromNow(
  subscription: Subscription,
  process: ProcessRef,
  replay: boolean,
): AsyncGenerator<ProcessEventInit> {
  const reading = readingOf(subscription);
  const { agent, subscriber, signal } = reading;
  // This read does not wait: it makes the subscriber and tells whether the process is there, and its pid.
  const first = await agent.readOutput(
    { process, subscriber, offset: 0, length: BATCH_BYTES, waitMs: 0, replay },
    signal,
  );
  for await (const event of events(reading, first)) if (event !== 'deadline') yield event;
}

/** Start event, output, end. Leaving the iteration gives the subscription back; the process goes on. */
async function* events(
  reading: Reading,
  first: OutputBatch,
  next?: Promise<OutputBatch>,
): AsyncGenerator<ProcessEventInit | 'deadline'> {
  const { agent, subscriber, signal } = reading;
  const silence = new Silence(reading.keepaliveMs);
  const { pid } = first;
  const readAfter = ({ nextOffset }: OutputBatch) => {
    const waitMs = Math.min(silence.leftMs, MAX_WAIT_MS);
    const position = { process: { pid }, subscriber, offset: nextOffset };
    return agent.readOutput({ ...position, length: BATCH_BYTES, waitMs, replay: false }, signal);
  };
  let batch = first;
  // Output is asked for while the start is told, not after it.
  let early = next ?? (first.chunks.length === 0 && !first.end ? readAfter(first) : undefined);
  early?.catch(() => undefined);
  try {
    yield startEvent(pid);
    for (;;) {
      if (batch.chunks.length > 0) {
        yield* whileHeld(reading, batch);
        silence.broken();
      }
      if (batch.end) {
        if (batch.end.deadlineHit) yield 'deadline';
        yield endEvent(batch.end);
        return;
      }
      if (silence.leftMs === 0) {
        yield keepaliveEvent();
        silence.broken();
      }
      batch = await (early ?? readAfter(batch));
      early = undefined;
    }
  } finally {
    reading.leave();
    if (!batch.end) forget(reading, pid);
  }
}

/**
 * Gives a subscription back that was left before the end, so that the process is not held back by a reader who is gone. A little later,
 * since a read that was cut off may still be on its way and would make the subscriber anew; not waited for, since nobody is there to
 * hear, and the agent forgets by itself in the end.
 */
function forget({ agent, subscriber }: Subscription, pid: number): void {
  setTimeout(() => void agent.unsubscribe(pid, subscriber).catch(() => undefined), FORGET_AFTER_MS).unref();
}

/** Hands on output while telling the agent, for as long as the client takes over it, that the subscriber is still there. */
async function* whileHeld(subscription: Subscription, batch: OutputBatch): AsyncGenerator<ProcessEventInit> {
  const { agent, subscriber, signal } = subscription;
  const position = { process: { pid: batch.pid }, subscriber, offset: batch.offset };
  const hold = setInterval(() => {
    void agent.readOutput({ ...position, length: 1, waitMs: 0, replay: false }, signal).catch(() => undefined);
  }, HOLD_EVERY_MS);
  try {
    yield* dataEvents(batch.chunks);
  } finally {
    clearInterval(hold);
  }
}
