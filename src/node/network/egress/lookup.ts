import { Resolver } from 'node:dns/promises';
import { nameServers } from '../name-servers.ts';

const ANSWER_MS = 3_000;
const TRIES = 2;
const MAX_KEPT = 2_000;
/** An answer is used again for as long as its owner says, and no longer than this. */
const MAX_KEPT_MS = 30_000;

interface Kept {
  addresses: string[];
  until: number;
}

/** The IPv4 addresses of a name, asked of the servers that the sandboxes' own questions go to. */
export class Lookup {
  readonly #given: readonly string[];
  readonly #kept = new Map<string, Kept>();
  #resolver = new Resolver({ timeout: ANSWER_MS, tries: TRIES });
  #servers = '';

  constructor(given: readonly string[]) {
    this.#given = given;
  }

  async addresses(name: string): Promise<string[]> {
    const now = Date.now();
    const kept = this.#kept.get(name);
    if (kept !== undefined && kept.until > now) return kept.addresses;
    const records = await this.#current().resolve4(name, { ttl: true });
    const addresses = records.map((record) => record.address);
    const keepMs = Math.min(MAX_KEPT_MS, Math.min(...records.map((record) => record.ttl)) * 1000);
    this.#kept.delete(name);
    if (keepMs > 0) this.#kept.set(name, { addresses, until: now + keepMs });
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_KEPT) break;
      this.#kept.delete(oldest);
    }
    return addresses;
  }

  #current(): Resolver {
    const servers = nameServers(this.#given).map(({ address, port }) => `${address}:${port}`);
    if (servers.join() !== this.#servers) {
      this.#resolver = new Resolver({ timeout: ANSWER_MS, tries: TRIES });
      this.#resolver.setServers(servers);
      this.#servers = servers.join();
      this.#kept.clear();
    }
    return this.#resolver;
  }
}
