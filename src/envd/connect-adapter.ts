import { type ConnectRouter, createConnectRouter, createContextValues } from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import { compressionGzip, universalRequestFromNodeRequest } from '@connectrpc/connect-node';
import { bodyOf, ClientGone, type HttpRequest, type HttpResponse, writeChunk, writeHead } from '../core/http.ts';
import { type SandboxCall, sandboxCallKey } from './context.ts';

export interface ConnectLimits {
  /** Largest message of a request. */
  readMaxBytes: number;
}

/** What serves a request of a sandbox by Connect; undefined for a path that is none of its calls. */
export type ConnectHandler = (
  path: string,
  req: HttpRequest,
) => ((call: SandboxCall, res: HttpResponse) => Promise<void>) | undefined;

/** Longer than a timer of Node can run; a stream does not live so long. */
const MAX_TIMEOUT_MS = 2 ** 31 - 10_000;

/**
 * Connect, gRPC and gRPC-web on Node's requests. connect-node has an adapter for this; ours differs in that a stream whose client has
 * left is always returned to, so that what it holds is given back at once.
 */
export function createConnectHandler(routes: (router: ConnectRouter) => void, limits: ConnectLimits): ConnectHandler {
  const router = createConnectRouter({
    requireConnectProtocolHeader: true,
    readMaxBytes: limits.readMaxBytes,
    // Compressed requests are read; answers are never compressed, since a stream must not wait for a block to fill.
    acceptCompression: [compressionGzip],
    compressMinBytes: Number.MAX_SAFE_INTEGER,
  });
  routes(router);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));

  return (path, req) => {
    const handler = handlers.get(path);
    if (handler === undefined) return undefined;
    return async (call, res) => {
      const values = createContextValues().set(sandboxCallKey, call);
      const request = { ...universalRequestFromNodeRequest(req, res, undefined, values), body: bodyOf(req) };
      capTimeout(request.header);
      await respond(await handler(request), res);
    };
  };
}

/** Node runs a timer that is too long at once, which would make a long deadline a short one. */
function capTimeout(header: Headers): void {
  const timeout = header.get('connect-timeout-ms');
  if (timeout !== null && /^\d{1,10}$/.test(timeout) && Number(timeout) > MAX_TIMEOUT_MS) {
    header.set('connect-timeout-ms', String(MAX_TIMEOUT_MS));
  }
}

async function respond(response: UniversalServerResponse, res: HttpResponse): Promise<void> {
  const body = response.body?.[Symbol.asyncIterator]();
  try {
    // The first piece comes before the head: until then the call may add to its headers.
    let piece = await body?.next();
    writeHead(res, response.status, plainHeaders(response.header));
    while (piece !== undefined && !piece.done) {
      await writeChunk(res, piece.value);
      piece = await body?.next();
    }
    if (response.trailer) res.addTrailers(plainHeaders(response.trailer));
    res.end();
  } catch (error) {
    if (!(error instanceof ClientGone)) throw error;
  } finally {
    await body?.return?.();
  }
}

function plainHeaders(headers: Headers | undefined): Record<string, string> {
  return Object.fromEntries(headers ?? []);
}
