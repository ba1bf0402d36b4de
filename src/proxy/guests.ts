import type { ClientHttp2Session } from 'node:http2';
import type { DataPlane } from '../node/contract.ts';
import { type DialTarget, dialPort } from './dial.ts';
import { openGuestSession } from './forward-http2.ts';
import { GuestAgent } from './guest-agent.ts';

/** The connections kept into one sandbox, by port. They end with the sandbox. */
class Guest {
  readonly agents = new Map<string, GuestAgent>();
  readonly sessions = new Map<string, Promise<ClientHttp2Session>>();
}

/** What the proxy keeps of every sandbox it has seen alive. */
export class Guests {
  readonly #dataPlane: DataPlane;
  readonly #guests = new Map<string, Guest>();

  constructor(dataPlane: DataPlane) {
    this.#dataPlane = dataPlane;
  }

  agent(target: DialTarget): GuestAgent {
    const guest = this.#of(target.sandboxId);
    const key = keyOf(target);
    let agent = guest.agents.get(key);
    if (agent === undefined) {
      const lifetime = this.#dataPlane.lifetime(target.sandboxId);
      agent = new GuestAgent(() => dialPort(this.#dataPlane, target, lifetime));
      guest.agents.set(key, agent);
    }
    return agent;
  }

  /** One HTTP/2 session a port carries all its streams; a new one follows when it has ended. */
  async session(target: DialTarget): Promise<ClientHttp2Session> {
    const { sessions } = this.#of(target.sandboxId);
    const key = keyOf(target);
    const kept = await sessions.get(key)?.catch(() => undefined);
    if (kept && !kept.closed && !kept.destroyed) return kept;
    const lifetime = this.#dataPlane.lifetime(target.sandboxId);
    const opening = dialPort(this.#dataPlane, target, lifetime, 'h2').then(openGuestSession);
    sessions.set(key, opening);
    const forget = () => {
      if (sessions.get(key) === opening) sessions.delete(key);
    };
    opening.then((session) => session.once('close', forget), forget);
    return opening;
  }

  close(): void {
    for (const sandboxId of [...this.#guests.keys()]) this.#forget(sandboxId);
  }

  #of(sandboxId: string): Guest {
    const known = this.#guests.get(sandboxId);
    if (known) return known;
    const guest = new Guest();
    this.#guests.set(sandboxId, guest);
    const lifetime = this.#dataPlane.lifetime(sandboxId);
    if (lifetime.aborted) this.#forget(sandboxId);
    else lifetime.addEventListener('abort', () => this.#forget(sandboxId), { once: true });
    return guest;
  }

  #forget(sandboxId: string): void {
    const guest = this.#guests.get(sandboxId);
    if (guest === undefined) return;
    this.#guests.delete(sandboxId);
    for (const agent of guest.agents.values()) agent.destroy();
    for (const session of guest.sessions.values()) session.then((open) => open.destroy()).catch(() => undefined);
  }
}

function keyOf(target: DialTarget): string {
  return `${target.port}${target.tls ? 's' : ''}`;
}
