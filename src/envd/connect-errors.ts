import { Code, ConnectError } from '@connectrpc/connect';
import { type AgentCode, AgentError } from '../agent/errors.ts';
import { SandbarError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';

/** How one call words a failure of the agent. */
export type Wording = { [code in AgentCode]?: (error: AgentError) => ConnectError };

/** The error a Connect client sees: the call's own words first, then what every call says alike. */
export function toConnectError(thrown: unknown, user: string, wording: Wording, log: Log): ConnectError {
  if (thrown instanceof ConnectError) return thrown;
  if (thrown instanceof AgentError) return wording[thrown.code]?.(thrown) ?? commonError(thrown, user);
  if (thrown instanceof SandbarError) return new ConnectError(thrown.message, thrown.connectCode);
  // The client is gone, or its deadline has passed: whoever aborted said why.
  if (thrown instanceof Error && (thrown.name === 'AbortError' || thrown.name === 'ClientGone')) {
    return new ConnectError(thrown.message, Code.Canceled);
  }
  log.error('an in-sandbox call failed', {
    error: thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown),
  });
  return new ConnectError('internal error', Code.Internal, undefined, undefined, thrown);
}

function commonError(error: AgentError, user: string): ConnectError {
  const where = error.path === '' ? '' : ` ${error.path}`;
  switch (error.code) {
    case 'UNKNOWN_USER':
      return new ConnectError(`invalid username: '${user}'`, Code.Unauthenticated);
    case 'INVALID':
      return new ConnectError(error.message, Code.InvalidArgument);
    case 'NO_SPACE':
    case 'EXHAUSTED':
      return new ConnectError(`${error.message}${where}`, Code.ResourceExhausted);
    case 'NOT_FOUND':
      return new ConnectError(`${error.message}${where}`, Code.NotFound);
    default:
      return new ConnectError(`${error.message}${where}`, Code.Internal);
  }
}
