import { Filesystem } from '../../proto/gen/filesystem_pb.js';
import { Process } from '../../proto/gen/process_pb.js';
import type { Agent } from '../agent/contract.ts';
import { SandbarError } from '../core/errors.ts';
import { abortResponse, departure, discardBody, type HttpRequest, type HttpResponse, sendJson } from '../core/http.ts';
import type { Log } from '../core/log.ts';
import { endWithSandbox } from '../core/sandbox-answers.ts';
import type { DataPlane } from '../node/contract.ts';
import type { SandboxDirectory, SandboxRow } from '../sandboxes/contract.ts';
import { basicUser, requireToken, requireTokenOrSignature } from './authentication.ts';
import { compose } from './compose.ts';
import { type ConnectHandler, createConnectHandler } from './connect-adapter.ts';
import type { SandboxCall } from './context.ts';
import { applyCors } from './cors.ts';
import { download } from './download.ts';
import { createFilesystemService } from './filesystem-service.ts';
import { internalPathAnswer } from './internal-paths.ts';
import { isPlainJsonStream, serveEventStream } from './json-stream.ts';
import { createProcessService } from './process-service.ts';
import { sendRestError } from './rest-error.ts';
import { type SandboxUsage, sendEnvs, sendHealth, sendMetrics, usageFromInside } from './status.ts';
import { Turns, type TurnTaking } from './turns.ts';
import { createUploadHandler, type UploadHandler } from './upload.ts';

/** The port of the in-sandbox interface, as clients know it. */
export const ENVD_PORT = 49983;

export interface EnvdOptions {
  directory: SandboxDirectory;
  dataPlane: DataPlane;
  log: Log;
  /** What a sandbox uses, as the machine counts it; without it /metrics tells what can be seen from inside. */
  usage?: (row: SandboxRow) => Promise<SandboxUsage>;
  /** Where uploads to one path take turns; each handler its own unless it is told otherwise. */
  turns?: TurnTaking;
  /** Largest message of a Connect request. */
  readMaxBytes?: number;
}

export type EnvdHandler = (row: SandboxRow, req: HttpRequest, res: HttpResponse) => void;

const DEFAULT_READ_MAX_BYTES = 64 * 1024 * 1024;

/** The in-sandbox interface, served on behalf of a sandbox: two Connect services and the file interface (contract §2). */
export function createEnvdHandler(options: EnvdOptions): EnvdHandler {
  const log = options.log.with({ part: 'envd' });
  const readMaxBytes = options.readMaxBytes ?? DEFAULT_READ_MAX_BYTES;
  const processes = createProcessService(log);
  const library = createConnectHandler(
    (router) => {
      router.service(Filesystem, createFilesystemService(log));
      router.service(Process, processes);
    },
    { readMaxBytes },
  );
  const start = { method: Process.method.start, run: processes.start };
  const attach = { method: Process.method.connect, run: processes.connect };
  const connect: ConnectHandler = (path, req) => {
    if (path === '/process.Process/Start' && isPlainJsonStream(req)) {
      return (call, res) => serveEventStream(start, call, req, res, readMaxBytes);
    }
    if (path === '/process.Process/Connect' && isPlainJsonStream(req)) {
      return (call, res) => serveEventStream(attach, call, req, res, readMaxBytes);
    }
    return library(path, req);
  };

  const parts = { connect, upload: createUploadHandler(options.turns ?? new Turns()) };

  return (row, req, res) => {
    if (applyCors(req, res)) return;
    const cut = () => endWithSandbox(row.id, res, req.headers);
    const present = presentSandbox(options.dataPlane, row.id);
    if (present === undefined) {
      cut();
      return;
    }
    const { agent, lifetime } = present;
    lifetime.addEventListener('abort', cut, { once: true });
    res.once('close', () => lifetime.removeEventListener('abort', cut));
    const gone = departure(res, lifetime);
    route(options, parts, { row, agent, gone }, req, res)
      .catch((error: unknown) => {
        if (lifetime.aborted) cut();
        else if (res.headersSent) abortResponse(res);
        else if (!gone.aborted) sendRestError(res, error, log);
      })
      .finally(() => discardBody(req));
  };
}

async function route(
  options: EnvdOptions,
  parts: { connect: ConnectHandler; upload: UploadHandler },
  sandbox: Omit<SandboxCall, 'user'>,
  req: HttpRequest,
  res: HttpResponse,
): Promise<void> {
  const [path, search] = splitUrl(req.url ?? '/');
  const query = new URLSearchParams(search);
  const reserved = internalPathAnswer(path);
  if (reserved) return sendJson(res, 404, reserved);
  const { row } = sandbox;
  const callFor = (user: string): SandboxCall => ({ ...sandbox, user });

  switch (`${req.method} ${path}`) {
    case 'GET /health':
      return sendHealth(res);
    case 'GET /files':
      requireTokenOrSignature(row, req, query, 'read');
      return download(callFor(query.get('username') ?? ''), query.get('path') ?? '', req, res);
    case 'POST /files':
      requireTokenOrSignature(row, req, query, 'write');
      return parts.upload(callFor(query.get('username') ?? ''), query.get('path') ?? undefined, req, res);
  }

  requireToken(row, req);
  const rpc = parts.connect(path, req);
  if (rpc) return rpc(callFor(basicUser(req)), res);
  switch (`${req.method} ${path}`) {
    case 'POST /files/compose':
      return compose(callFor(''), req, res);
    case 'GET /envs':
      return sendEnvs(row, res);
    case 'GET /metrics': {
      const call = callFor('');
      const usage = options.usage ? await options.usage(row) : await usageFromInside(call);
      return sendMetrics(call, usage, res);
    }
  }
  const known = ['/health', '/files', '/files/compose', '/envs', '/metrics'].includes(path);
  if (known) return sendJson(res, 405, { code: 405, message: `method ${req.method} is not allowed for ${path}` });
  sendJson(res, 404, { code: 404, message: `path '${path}' not found` });
}

/** Path and query of a request line. Not by `URL`, to which two slashes at the beginning are a host. */
function splitUrl(url: string): [path: string, search: string] {
  const mark = url.indexOf('?');
  return mark < 0 ? [url, ''] : [url.slice(0, mark), url.slice(mark + 1)];
}

/** The way into a sandbox; undefined when it has just gone from this machine. */
function presentSandbox(dataPlane: DataPlane, sandboxId: string): { agent: Agent; lifetime: AbortSignal } | undefined {
  try {
    const lifetime = dataPlane.lifetime(sandboxId);
    return lifetime.aborted ? undefined : { agent: dataPlane.agent(sandboxId), lifetime };
  } catch (error) {
    if (error instanceof SandbarError && error.kind === 'not_found') return undefined;
    throw error;
  }
}
