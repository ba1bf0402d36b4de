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

/** What a process needs for a way of its own into a sandbox. */
export interface GuestAccess {
  host: string;
  agentPort: number;
  /** Secret of the agent, hexadecimal. */
  secret: string;
  /** Nothing may reach the agent until `reopen`. */
  held: boolean;
}

/** Whoever has ways of its own into sandboxes and is told what becomes of them. */
export interface Follower {
  /** Holds requests to the agent back and lets go of every connection; resolves when none is left. */
  hold(sandboxId: string): Promise<void>;
  /** Lets requests go on. */
  reopen(sandboxId: string): void;
  /** Cuts what hangs on the sandbox, which goes on, or will. */
  cut(sandboxId: string, reason: string): void;
  /** Cuts everything, for good. */
  end(sandboxId: string, reason: string): void;
}

/** Lets other processes have ways of their own into the sandboxes of this machine. */
export interface FollowedSandboxes {
  /** The way into a sandbox; from now on the follower is told of it. Undefined when it is not on this machine. */
  follow(sandboxId: string, follower: Follower): GuestAccess | undefined;
  /** Resolves when the sandbox is as it was asked for inside: nobody may have a way of its own into it before. */
  settled(sandboxId: string): Promise<void>;
  /** The follower is gone. */
  unfollow(follower: Follower): void;
}
