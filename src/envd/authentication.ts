import { matchesAny } from '../core/constant-time.ts';
import { SandbarError } from '../core/errors.ts';
import { type HttpRequest, headerOf } from '../core/http.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';
import { type FileOperation, signatureProblem } from './signature.ts';

/** Tokens that open a sandbox; none when it is not secured. */
export function tokensOf(row: SandboxRow): readonly string[] {
  return row.envdAccessToken === null ? [] : [row.envdAccessToken, ...row.earlierTokens];
}

/** Whether the request has the token of the sandbox, or needs none. */
export function hasToken(row: SandboxRow, req: HttpRequest): boolean {
  const tokens = tokensOf(row);
  const presented = headerOf(req.headers, 'x-access-token');
  return tokens.length === 0 || (presented !== undefined && matchesAny(presented, tokens));
}

/** Throws unless the request has the token of a secured sandbox. */
export function requireToken(row: SandboxRow, req: HttpRequest): void {
  if (!hasToken(row, req)) {
    throw new SandbarError(
      'unauthenticated',
      'unauthorized access, please provide a valid access token or method signing if supported',
    );
  }
}

/** Throws unless a file request has the token or a signature. A token that is there must be right: a signature does not mend it. */
export function requireTokenOrSignature(
  row: SandboxRow,
  req: HttpRequest,
  query: URLSearchParams,
  operation: FileOperation,
): void {
  const tokens = tokensOf(row);
  if (tokens.length === 0) return;
  const presented = headerOf(req.headers, 'x-access-token');
  if (presented !== undefined) {
    if (matchesAny(presented, tokens)) return;
    throw new SandbarError('unauthenticated', 'access token present in header but does not match');
  }
  const request = {
    path: query.get('path') ?? '',
    operation,
    user: query.get('username') ?? '',
    expiration: expirationOf(query),
  };
  const signature = query.get('signature') ?? undefined;
  const problem = signatureProblem(signature, request, tokens, Math.floor(Date.now() / 1000));
  if (problem !== undefined) throw new SandbarError('unauthenticated', problem);
}

/** The user that `Authorization: Basic` names; empty for the default one. The password means nothing. */
export function basicUser(req: HttpRequest): string {
  const match = /^basic\s+([a-z0-9+/=_-]+)\s*$/i.exec(headerOf(req.headers, 'authorization') ?? '');
  if (!match?.[1]) return '';
  const text = Buffer.from(match[1], 'base64').toString('utf8');
  const colon = text.indexOf(':');
  return colon < 0 ? '' : text.slice(0, colon);
}

function expirationOf(query: URLSearchParams): number | undefined {
  const text = query.get('signature_expiration');
  if (text === null) return undefined;
  if (!/^-?\d{1,15}$/.test(text)) {
    throw new SandbarError('invalid', 'signature_expiration must be a whole number of seconds');
  }
  return Number(text);
}
