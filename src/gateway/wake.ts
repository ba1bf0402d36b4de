import { setTimeout as delay } from 'node:timers/promises';
import { matchesAny } from '../core/constant-time.ts';
import { SandbarError } from '../core/errors.ts';
import type { HttpRequest } from '../core/http.ts';
import {
  type Answer,
  limitReached,
  resumeForbidden,
  sandboxNotFound,
  stillTransitioning,
} from '../core/sandbox-answers.ts';
import { hasToken } from '../envd/authentication.ts';
import { ENVD_PORT } from '../envd/server.ts';
import { trafficTokenOf } from '../proxy/headers.ts';
import type { SandboxDirectory, SandboxRow } from '../sandboxes/contract.ts';

const PATIENCE_MS = 60_000;

/** The sandbox that a request is for, woken where it sleeps and may be woken; otherwise why the request cannot reach it. */
export async function findSandbox(
  directory: SandboxDirectory,
  sandboxId: string,
  port: number,
  req: HttpRequest,
): Promise<SandboxRow | Answer> {
  const row = await directory.lookup(sandboxId);
  if (row === undefined) return sandboxNotFound(sandboxId);
  if (row.state === 'running' || row.state === 'snapshotting') return row;
  // Clients ask whether it runs, also by themselves when a pause has cut their streams: the answer is no, and that must not undo the pause.
  if (port === ENVD_PORT && isHealthProbe(req) && row.state !== 'resuming') return sandboxNotFound(sandboxId);
  // Somebody who may not come in may not wake it either: a signed URL is no proof here, it opens one file.
  if (!mayWake(row, port, req)) return resumeForbidden(sandboxId);
  const patience = new AbortController();
  try {
    const late = delay(PATIENCE_MS, stillTransitioning(sandboxId), { signal: patience.signal, ref: false });
    return await Promise.race([directory.wake(sandboxId), late]);
  } catch (error) {
    if (!(error instanceof SandbarError)) throw error;
    if (error.kind === 'not_found') return sandboxNotFound(sandboxId);
    if (error.kind === 'conflict') return stillTransitioning(sandboxId);
    if (error.kind === 'rate_limited') return limitReached(sandboxId, error.message);
    throw error;
  } finally {
    patience.abort();
  }
}

function isHealthProbe(req: HttpRequest): boolean {
  return (req.url ?? '').split('?')[0] === '/health';
}

function mayWake(row: SandboxRow, port: number, req: HttpRequest): boolean {
  if (port === ENVD_PORT) return hasToken(row, req);
  return row.trafficAccessToken === null || matchesAny(trafficTokenOf(req.headers) ?? '', [row.trafficAccessToken]);
}
