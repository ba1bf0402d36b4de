import { AgentError } from '../agent/errors.ts';
import { SandbarError, toSandbarError } from '../core/errors.ts';
import { ClientGone, type HttpResponse, sendJson } from '../core/http.ts';
import type { Log } from '../core/log.ts';

/** Answers a failed request of the file interface: `{code, message}`, the code being the status. */
export function sendRestError(res: HttpResponse, thrown: unknown, log: Log): void {
  if (thrown instanceof ClientGone) return;
  const error = toSandbarError(thrown);
  if (error !== thrown) log.error('a file request failed', { error: error.message });
  sendJson(res, error.httpStatus, { code: error.httpStatus, message: error.message });
}

/** Failures that every file request tells the same way; others are the caller's to word. */
export function commonFileError(thrown: unknown, user: string): unknown {
  if (!(thrown instanceof AgentError)) return thrown;
  switch (thrown.code) {
    case 'UNKNOWN_USER':
      return new SandbarError('unauthenticated', `error looking up user '${user}': user: unknown user ${user}`);
    case 'NO_SPACE':
      return new SandbarError('no_space', `not enough disk space available: ${thrown.message}`);
    case 'INVALID':
      return new SandbarError('invalid', `error resolving path: ${thrown.message}`);
    default:
      return thrown;
  }
}
