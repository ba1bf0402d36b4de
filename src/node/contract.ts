import type { Duplex } from 'node:stream';
import type { Agent } from '../agent/contract.ts';

/** The way from this machine into its sandboxes; what the in-sandbox interface and the proxy stand on. */
export interface DataPlane {
  /** The agent of a sandbox that runs on this machine; not_found otherwise. */
  agent(sandboxId: string): Agent;
  /** A connection to a port inside, on whatever address it listens there; refused as bad_gateway. */
  dial(sandboxId: string, port: number, signal?: AbortSignal): Promise<Duplex>;
  /** Aborts when the sandbox ends, freezes or is paused: whoever holds a stream of it cuts the stream. */
  lifetime(sandboxId: string): AbortSignal;
}
