import { createHash } from 'node:crypto';
import { matchesAny } from '../core/constant-time.ts';

export type FileOperation = 'read' | 'write';

/** What a signed URL speaks for. */
export interface SignedRequest {
  /** The `path` parameter as it was sent, not resolved; empty when absent. */
  path: string;
  operation: FileOperation;
  /** The `username` parameter; empty when absent. */
  user: string;
  /** Unix seconds. */
  expiration: number | undefined;
}

/** `v1_` and the unpadded standard base64 of the SHA-256 of `path:operation:user:token[:expiration]`. */
export function signatureOf(request: SignedRequest, token: string): string {
  const parts = [request.path, request.operation, request.user, token];
  if (request.expiration !== undefined) parts.push(String(request.expiration));
  const digest = createHash('sha256').update(parts.join(':')).digest('base64');
  return `v1_${digest.replace(/=+$/, '')}`;
}

/** Why a signature does not give access, or undefined when it does. A signature made with any token of the sandbox counts. */
export function signatureProblem(
  signature: string | undefined,
  request: SignedRequest,
  tokens: readonly string[],
  nowSeconds: number,
): string | undefined {
  if (signature === undefined || signature === '') return 'missing signature query parameter';
  const accepted = tokens.map((token) => signatureOf(request, token));
  if (!matchesAny(signature, accepted)) return 'invalid signature';
  if (request.expiration !== undefined && request.expiration < nowSeconds) return 'signature is already expired';
  return undefined;
}
