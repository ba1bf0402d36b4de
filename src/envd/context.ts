import { Code, ConnectError, createContextKey, type HandlerContext } from '@connectrpc/connect';
import type { Agent } from '../agent/contract.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';

/** What a request to a sandbox stands on. */
export interface SandboxCall {
  row: SandboxRow;
  agent: Agent;
  /** The user named by the request; empty for the sandbox's default one. */
  user: string;
  /** Aborts when the client has left or the sandbox has ended, whichever comes first; not at the request's deadline. */
  gone: AbortSignal;
}

/** Where Connect handlers find the call they serve. */
export const sandboxCallKey = createContextKey<SandboxCall | undefined>(undefined, {
  description: 'the sandbox a request is about',
});

export function sandboxCallOf(context: HandlerContext): SandboxCall {
  const call = context.values.get(sandboxCallKey);
  if (call === undefined) throw new ConnectError('the request is about no sandbox', Code.Internal);
  return call;
}
