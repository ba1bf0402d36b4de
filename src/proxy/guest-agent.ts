import { Agent, type ClientRequest, type ClientRequestArgs } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** A kept connection is dropped before a server of the usual kind (5 s) drops it, so that no request meets a closing one. */
const IDLE_MS = 4_000;
const MAX_IDLE = 32;

/** Node's keep-alive agent over connections into one sandbox. */
export class GuestAgent extends Agent {
  readonly #dial: () => Promise<Duplex>;

  constructor(dial: () => Promise<Duplex>) {
    super({ keepAlive: true, maxFreeSockets: MAX_IDLE, scheduling: 'lifo' });
    this.#dial = dial;
  }

  override createConnection(
    _options: ClientRequestArgs,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const done = callback as (error: Error | null, stream?: Duplex) => void;
    this.#dial().then(
      (connection) => done(null, connection),
      (error: Error) => done(error),
    );
  }

  override keepSocketAlive(stream: Duplex): boolean {
    // Only a socket can be given a time limit; what is dialled is one in truth, though its contract does not say so.
    if (!(stream instanceof Socket)) return false;
    stream.setTimeout(IDLE_MS, () => stream.destroy());
    return true;
  }

  override reuseSocket(stream: Duplex, request: ClientRequest): void {
    if (!(stream instanceof Socket)) return;
    stream.removeAllListeners('timeout');
    stream.setTimeout(0);
    super.reuseSocket(stream, request);
  }
}
