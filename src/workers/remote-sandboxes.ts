import type { Duplex } from 'node:stream';
import type { Agent } from '../agent/contract.ts';
import { GuestLink } from '../agent/link.ts';
import { SandbarError } from '../core/errors.ts';
import type { SandboxUsage } from '../envd/status.ts';
import type { TurnTaking } from '../envd/turns.ts';
import type { DataPlane, GuestAccess } from '../node/contract.ts';
import type { Admission, Leave } from '../proxy/admission.ts';
import type { SandboxDirectory, SandboxRow } from '../sandboxes/contract.ts';
import type { Channel } from './channel.ts';
import type { MainSurface } from './contract.ts';

/** The sandboxes as a worker has them: the main process says which there are, the connections into them are the worker's own. */
export class RemoteSandboxes implements SandboxDirectory, DataPlane, Admission, TurnTaking {
  readonly #main: Channel<MainSurface>;
  readonly #links = new Map<string, GuestLink>();

  constructor(main: Channel<MainSurface>) {
    this.#main = main;
  }

  lookup(sandboxId: string): Promise<SandboxRow | undefined> {
    return this.#main.call('lookup', sandboxId);
  }

  wake(sandboxId: string): Promise<SandboxRow> {
    return this.#main.call('wake', sandboxId);
  }

  async usage(row: SandboxRow): Promise<SandboxUsage> {
    const usage = await this.#main.call('usage', row.id);
    if (usage === undefined) throw notHere(row.id);
    return usage;
  }

  async enter(sandboxId: string, limit: number): Promise<Leave | undefined> {
    const number = await this.#main.call('enter', sandboxId, limit);
    return number === undefined ? undefined : () => this.#main.tell('leave', number);
  }

  async take(key: string, limitMs: number): Promise<() => void> {
    const number = await this.#main.call('takeTurn', key, limitMs);
    return () => this.#main.tell('endTurn', number);
  }

  agent(sandboxId: string): Agent {
    return this.#link(sandboxId).agent;
  }

  lifetime(sandboxId: string): AbortSignal {
    return this.#link(sandboxId).lifetime;
  }

  async dial(sandboxId: string, port: number, signal?: AbortSignal): Promise<Duplex> {
    return this.#link(sandboxId).dial(port, signal);
  }

  know(sandboxId: string, { host, agentPort, secret, held }: GuestAccess): void {
    const target = { host, port: agentPort, secret: Buffer.from(secret, 'hex') };
    // Every worker may have a way into every sandbox: none keeps one open that it does not use.
    const link = new GuestLink(target, { keepOne: false });
    this.#links.get(sandboxId)?.close('the sandbox has moved');
    this.#links.set(sandboxId, link);
    if (held) void link.agent.quiesce();
  }

  async hold(sandboxId: string): Promise<void> {
    await this.#links.get(sandboxId)?.agent.quiesce();
  }

  reopen(sandboxId: string): void {
    this.#links.get(sandboxId)?.agent.reopen();
  }

  cut(sandboxId: string, reason: string): void {
    this.#links.get(sandboxId)?.cut(reason);
  }

  end(sandboxId: string, reason: string): void {
    this.#links.get(sandboxId)?.close(reason);
    this.#links.delete(sandboxId);
  }

  #link(sandboxId: string): GuestLink {
    const link = this.#links.get(sandboxId);
    if (link === undefined) throw notHere(sandboxId);
    return link;
  }
}

function notHere(sandboxId: string): SandbarError {
  return new SandbarError('not_found', `sandbox ${sandboxId} is not on this machine`);
}
