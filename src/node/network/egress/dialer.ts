import type { Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { connectTcp } from '../../../core/connect-tcp.ts';
import { messageOf } from '../../../core/errors.ts';
import { AddressSet } from '../address-set.ts';
import type { CompiledPolicy } from '../policy.ts';
import { PROTECTED_RANGES } from '../rules.ts';
import type { Destination, Way } from './decision.ts';
import type { Lookup } from './lookup.ts';
import { connectThrough } from './socks5.ts';

const CONNECT_MS = 10_000;
/** Addresses of one name that are tried. */
const MOST_ADDRESSES = 3;

/** A connection that must not be made. */
export class Refused extends Error {}

/** Makes connections for sandboxes from the machine itself, which could reach more than they may: every address is looked at first. */
export class Dialer {
  readonly #lookup: Lookup;
  readonly #protected: AddressSet;

  /** `range` is that of the sandboxes. */
  constructor(lookup: Lookup, range: string) {
    this.#lookup = lookup;
    this.#protected = new AddressSet([...PROTECTED_RANGES, range]);
  }

  async dial(policy: CompiledPolicy, destination: Destination, way: Way, signal: AbortSignal): Promise<Socket> {
    const { via } = way;
    // A server of the user's own finds the names that are allowed as names.
    if (via !== undefined && way.name !== undefined && way.byName)
      return this.#through(via, way.name, destination.port, signal);
    const addresses = way.name === undefined ? [destination.address] : await this.#resolve(way.name);
    const open = addresses.filter((address) => way.byName || policy.permitsAddress(address));
    const [first] = open;
    if (first === undefined) throw new Refused(`${way.name ?? destination.address} is not allowed`);
    if (via !== undefined) return this.#through(via, this.#unprotected([first])[0] ?? first, destination.port, signal);
    return this.#connect(open, destination.port, signal);
  }

  async #through(via: NonNullable<Way['via']>, host: string, port: number, signal: AbortSignal): Promise<Socket> {
    const socket = await this.#connect(await this.#resolve(via.host), via.port, signal);
    const late = setTimeout(() => socket.destroy(), CONNECT_MS);
    try {
      await connectThrough(socket, via, host, port);
      return socket;
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      clearTimeout(late);
    }
  }

  async #connect(addresses: readonly string[], port: number, signal: AbortSignal): Promise<Socket> {
    let failure: unknown;
    for (const address of this.#unprotected(addresses).slice(0, MOST_ADDRESSES)) {
      try {
        return await connectTcp(address, port, CONNECT_MS, signal, { allowHalfOpen: true });
      } catch (error) {
        if (signal.aborted) throw error;
        failure = error;
      }
    }
    throw failure;
  }

  async #resolve(host: string): Promise<string[]> {
    if (/^[\d.]+$/.test(host)) return [host];
    try {
      return await this.#lookup.addresses(host);
    } catch (error) {
      throw new Error(`${host} was not found: ${messageOf(error)}`, { cause: error });
    }
  }

  /** What is left of addresses without those of this machine and of networks that are closed to sandboxes. */
  #unprotected(addresses: readonly string[]): string[] {
    const own = new Set(Object.values(networkInterfaces()).flatMap((all) => all?.map((each) => each.address) ?? []));
    const open = addresses.filter((address) => !this.#protected.contains(address) && !own.has(address));
    if (open.length === 0) throw new Refused(`${addresses.join(', ')} is closed to sandboxes`);
    return open;
  }
}
