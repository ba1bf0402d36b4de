import { messageOf } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import type { HostHelper } from '../host-helper.ts';
import { NOTED_SECONDS } from './rules.ts';

/** Something that a sandbox tried to reach and may not. */
export interface Denial {
  sandboxId: string;
  /** tcp, udp, icmp or a number; dns for a name that was asked for. */
  protocol: string;
  /** Address or name. */
  host: string;
  /** 0 where the protocol has none. */
  port: number;
  atMs: number;
}

export interface DenialsOptions {
  table: string;
  /** The sandbox behind an interface or an address. */
  sandboxAt: (place: string) => string | undefined;
  report: (denial: Denial) => void;
  helper: Pick<HostHelper, 'run'>;
  log: Log;
}

/** How often the kernel's notes are read. */
const ROUND_MS = 2_000;
/** Denials of one sandbox that are told in one minute. */
const MOST_A_MINUTE = 60;
const MINUTE_MS = 60_000;

/**
 * Tells of refused connections, whoever refused them: the fence (whose notes are read from the kernel now and then), the egress proxy or the
 * resolver. The same destination is told once a minute, and no sandbox is told of without end.
 */
export class Denials {
  readonly #options: DenialsOptions;
  /** When a denial was told last, by all that makes it different from others. */
  readonly #told = new Map<string, number>();
  readonly #counts = new Map<string, { since: number; count: number }>();
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> | undefined;

  constructor(options: DenialsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#reading ??= this.#read()
        .catch((error) => this.#options.log.warn('refused connections cannot be read', { error: messageOf(error) }))
        .finally(() => {
          this.#reading = undefined;
        });
    }, ROUND_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#reading;
  }

  /** `place` is the sandbox's address or interface. */
  note(place: string, protocol: string, host: string, port: number): void {
    const sandboxId = this.#options.sandboxAt(place);
    const now = Date.now();
    if (sandboxId === undefined) return;
    const key = [sandboxId, protocol, host, port].join(' ');
    if (now - (this.#told.get(key) ?? 0) < MINUTE_MS || this.#isOften(sandboxId, now)) return;
    this.#told.set(key, now);
    this.#options.report({ sandboxId, protocol, host, port, atMs: now });
  }

  async #read(): Promise<void> {
    const { helper, table } = this.#options;
    for (const set of ['refused_ports', 'refused_addresses']) {
      const { stdout } = await helper.run('nft', ['--json', 'list', 'set', 'inet', table, set]);
      for (const { place, protocol, host, port } of notesIn(stdout)) this.note(place, protocol, host, port);
    }
    const now = Date.now();
    for (const [key, at] of this.#told) if (now - at > MINUTE_MS) this.#told.delete(key);
    for (const [id, { since }] of this.#counts) if (now - since > MINUTE_MS) this.#counts.delete(id);
  }

  #isOften(sandboxId: string, now: number): boolean {
    const known = this.#counts.get(sandboxId);
    const counter = known !== undefined && now - known.since < MINUTE_MS ? known : { since: now, count: 0 };
    this.#counts.set(sandboxId, counter);
    return ++counter.count > MOST_A_MINUTE;
  }
}

interface Note {
  place: string;
  protocol: string;
  host: string;
  port: number;
}

/** The notes in what nft prints. Those that were made in the last moments only: the others were told before. */
export function notesIn(json: string): Note[] {
  const document = JSON.parse(json) as { nftables: { set?: { elem?: NftElement[] } }[] };
  return document.nftables
    .flatMap(({ set }) => set?.elem ?? [])
    .filter(({ elem }) => NOTED_SECONDS - (elem.expires ?? 0) <= (3 * ROUND_MS) / 1000)
    .map(({ elem }) => {
      const [place = '', host = '', protocol = '', port = 0] = elem.val.concat;
      return { place: String(place), host: String(host), protocol: String(protocol), port: Number(port) };
    });
}

interface NftElement {
  elem: { val: { concat: (string | number)[] }; expires?: number };
}
