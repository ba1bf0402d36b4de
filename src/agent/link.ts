import type { Duplex } from 'node:stream';
import { connectTcp } from '../core/connect-tcp.ts';
import { errnoOf, messageOf, SandbarError } from '../core/errors.ts';
import { AgentClient } from './client.ts';
import type { AgentTarget } from './connection.ts';
import { AgentError } from './errors.ts';

const DIAL_TIMEOUT_MS = 5_000;

/** One process's way into a sandbox: its agent, its ports, and the signal that cuts everything that hangs on them. */
export class GuestLink {
  readonly agent: AgentClient;
  readonly #host: string;
  #lifetime = new AbortController();

  constructor(target: AgentTarget, options: { keepOne?: boolean } = {}) {
    this.#host = target.host;
    this.agent = new AgentClient(target, options);
  }

  /** Aborts when the sandbox ends or is paused. */
  get lifetime(): AbortSignal {
    return this.#lifetime.signal;
  }

  /** A connection to a port inside, on whatever address it listens there; refused as bad_gateway. */
  async dial(port: number, signal?: AbortSignal): Promise<Duplex> {
    try {
      return await connectTcp(this.#host, port, DIAL_TIMEOUT_MS, signal);
    } catch (error) {
      if (errnoOf(error) !== 'ECONNREFUSED') throw new SandbarError('bad_gateway', messageOf(error), { cause: error });
    }
    // Nothing on the outer address: it may listen on loopback only, where the agent reaches it.
    try {
      return await this.agent.dial(port, signal);
    } catch (error) {
      if (error instanceof AgentError && error.code === 'REFUSED')
        throw new SandbarError('bad_gateway', `port ${port} is not open`);
      throw error;
    }
  }

  /** Cuts every stream that hangs on the sandbox, which itself goes on, or will. */
  cut(reason: string): void {
    this.#lifetime.abort(new SandbarError('unavailable', reason));
    this.#lifetime = new AbortController();
  }

  /** Cuts everything that hangs on the sandbox, for good. */
  close(reason: string): void {
    this.#lifetime.abort(new SandbarError('unavailable', reason));
    this.agent.close(reason);
  }
}
