import { createServer, type Server, type Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../../../core/errors.ts';
import type { Log } from '../../../core/log.ts';
import type { Occupant, Occupants } from '../occupants.ts';
import { type Destination, decide, type Way } from './decision.ts';
import { type Dialer, Refused } from './dialer.ts';
import type { Interceptor } from './interceptor.ts';
import { type Opening, readOpening } from './opening.ts';
import { relay, reset } from './relay.ts';

export interface EgressProxyOptions {
  /** Where a redirected connection was going, by both its ends. */
  originOf: (client: Destination, local: Destination) => Promise<Destination>;
  occupants: Occupants;
  dialer: Dialer;
  interceptor: Interceptor;
  /** Hears of connections that were not allowed: to a name or an address. */
  denied: (guest: string, host: string, port: number) => void;
  log: Log;
}

/** One connection of a sandbox. */
interface Flow {
  client: Socket;
  upstream?: Socket;
  /** Ends whatever is still on its way to be opened. */
  cut: AbortController;
  destination?: Destination;
  opening?: Opening;
  way?: Way;
}

/** Connections of one sandbox here at a time, and of those still to be read: each takes memory of the service. */
const MOST_FLOWS = 1_024;
const MOST_OPENING = 256;
/** How long a connection that only its name can allow may take to tell it. */
const PATIENCE_MS = 10_000;
/** Where the address is allowed, one that says nothing for so long waits for the server to speak first (SSH, SMTP, databases). */
const QUIET_MS = 250;

/**
 * The way out for connections that rules about names concern. They arrive here by redirection; the name is read from what they send first, and
 * the connection is then made from here: to the name itself, past every closed address, through the user's SOCKS5 server where there is one.
 */
export class EgressProxy {
  readonly #options: EgressProxyOptions;
  readonly #flows = new Map<string, Set<Flow>>();
  readonly #server: Server;

  constructor(options: EgressProxyOptions) {
    this.#options = options;
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (client) => {
      client.on('error', () => undefined);
      void this.#admit(client);
    });
  }

  /** Listens on the preferred port, or on another when it is taken; resolves to the port. */
  async start(preferredPort: number): Promise<number> {
    await this.#listen(preferredPort).catch(() => this.#listen(0));
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  async stop(): Promise<void> {
    for (const guest of [...this.#flows.keys()]) this.cutAll(guest);
    if (this.#server.listening) await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Cuts what the present policy of a sandbox does not allow any more, or would send another way. */
  reconsider(guest: string): void {
    const occupant = this.#options.occupants.of(guest);
    for (const flow of this.#flows.get(guest) ?? []) {
      // One that is still being read meets the new policy by itself.
      if (flow.way !== undefined && !(occupant !== undefined && stillGoes(flow, occupant))) cut(flow);
    }
  }

  cutAll(guest: string): void {
    for (const flow of this.#flows.get(guest) ?? []) cut(flow);
  }

  #listen(port: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, '0.0.0.0', () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
  }

  async #admit(client: Socket): Promise<void> {
    const guest = client.remoteAddress ?? '';
    if (this.#options.occupants.of(guest) === undefined) return reset(client);
    const flow: Flow = { client, cut: new AbortController() };
    const flows = this.#flows.get(guest) ?? new Set();
    const opening = [...flows].filter(({ way }) => way === undefined).length;
    if (flows.size >= MOST_FLOWS || opening >= MOST_OPENING) return reset(client);
    this.#flows.set(guest, flows.add(flow));
    client.once('close', () => {
      flow.cut.abort();
      flows.delete(flow);
      if (flows.size === 0 && this.#flows.get(guest) === flows) this.#flows.delete(guest);
    });
    try {
      await this.#serve(guest, flow);
    } catch (error) {
      cut(flow);
      const host = flow.way?.name ?? flow.destination?.address ?? '';
      if (error instanceof Refused) this.#options.denied(guest, host, flow.destination?.port ?? 0);
      else this.#options.log.debug('a connection did not get out', { guest, host, error: messageOf(error) });
    }
  }

  async #serve(guest: string, flow: Flow): Promise<void> {
    const { client } = flow;
    const destination = await this.#options.originOf(remoteEnd(client), localEnd(client));
    flow.destination = destination;
    const byAddress = this.#occupant(guest).policy.permitsAddress(destination.address);
    const opening = await readOpening(client, { quietMs: byAddress ? QUIET_MS : PATIENCE_MS, patienceMs: PATIENCE_MS });
    flow.opening = opening;
    // The policy as it is by now.
    const occupant = this.#occupant(guest);
    const decision = decide(occupant.policy, destination, opening);
    if (decision.verdict === 'refuse') {
      cut(flow);
      this.#options.denied(guest, opening.name ?? destination.address, destination.port);
      return;
    }
    const { verdict: _, ...way } = decision;
    flow.way = way;
    const dial = () => this.#options.dialer.dial(occupant.policy, destination, way, flow.cut.signal);
    if (way.headers !== undefined && opening.kind !== 'other' && opening.kind !== 'silent') {
      const secrets = () => this.#options.occupants.secretsOf(occupant.sandboxId);
      await this.#options.interceptor.take(client, opening, { headers: way.headers, secrets, dial });
      return;
    }
    flow.upstream = await dial();
    relay(client, flow.upstream, opening.head);
  }

  #occupant(guest: string): Occupant {
    const occupant = this.#options.occupants.of(guest);
    if (occupant === undefined) throw new Error('the sandbox has gone');
    return occupant;
  }
}

function stillGoes({ destination, opening, way, upstream }: Flow, { policy }: Occupant): boolean {
  if (destination === undefined || opening === undefined) return false;
  const decision = decide(policy, destination, opening);
  if (decision.verdict === 'refuse') return false;
  const { verdict: _, ...present } = decision;
  if (!isDeepStrictEqual(present, way)) return false;
  const reached = upstream?.remoteAddress;
  return present.byName || present.via !== undefined || reached === undefined || policy.permitsAddress(reached);
}

function cut(flow: Flow): void {
  flow.cut.abort(new Error('not allowed any more'));
  reset(flow.client);
  if (flow.upstream !== undefined) reset(flow.upstream);
}

function remoteEnd(socket: Socket): Destination {
  return { address: socket.remoteAddress ?? '', port: socket.remotePort ?? 0 };
}

function localEnd(socket: Socket): Destination {
  return { address: socket.localAddress ?? '', port: socket.localPort ?? 0 };
}
