import type { IncomingHttpHeaders, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { constants, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';

/** A request of either HTTP version; Node's compatibility layer gives both the same shape. */
export type HttpRequest = IncomingMessage | Http2ServerRequest;
export type HttpResponse = ServerResponse | Http2ServerResponse;
export type HttpHandler = (req: HttpRequest, res: HttpResponse) => void;

/** The one value of a header; several are joined, as the protocol lets them be. */
export function headerOf(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

/** Host of a request, of HTTP/1 or HTTP/2. */
export function hostOf(req: HttpRequest): string {
  return headerOf(req.headers, ':authority') ?? req.headers.host ?? '';
}

export function sendJson(res: HttpResponse, status: number, body: unknown, headers: OutgoingHttpHeaders = {}): void {
  sendBytes(res, status, Buffer.from(JSON.stringify(body)), { 'content-type': 'application/json', ...headers });
}

/** A whole answer. Nothing happens when one has begun already or nobody is there to take it. */
export function sendBytes(res: HttpResponse, status: number, body: Buffer, headers: OutgoingHttpHeaders): void {
  if (res.headersSent || res.destroyed) return;
  writeHead(res, status, { ...headers, 'content-length': body.length });
  res.end(body);
}

export function writeHead(res: HttpResponse, status: number, headers: OutgoingHttpHeaders): void {
  if ('stream' in res) res.writeHead(status, headers);
  else res.writeHead(status, headers);
}

/**
 * Breaks an answer off so that the client sees it broken: the connection of HTTP/1 is cut, the stream of HTTP/2 reset (its
 * connection may carry others). A clean end would look like success.
 */
export function abortResponse(res: HttpResponse): void {
  if ('stream' in res) res.stream?.close(constants.NGHTTP2_INTERNAL_ERROR);
  else if (res.socket) res.socket.destroy();
  else res.destroy();
}

/** Writes and waits until more may be written. Rejects when the client has gone. `written` is called when the chunk is on its way. */
export async function writeChunk(
  res: HttpResponse,
  chunk: Uint8Array,
  written?: (error?: Error | null) => void,
): Promise<void> {
  if (isGone(res)) throw new ClientGone();
  const ready = 'stream' in res ? res.write(chunk, written) : res.write(chunk, written);
  if (!ready) await drained(res);
}

/** Nobody reads the answer any more. */
export class ClientGone extends Error {
  constructor() {
    super('the client has closed the connection');
    this.name = 'ClientGone';
  }
}

/**
 * Aborts when the client leaves before it has the whole answer, or when what the answer comes from ends. Made by hand instead of with
 * AbortSignal.any, since the lifetime outlives a million requests and must not remember one of them.
 */
export function departure(res: HttpResponse, lifetime?: AbortSignal): AbortSignal {
  const controller = new AbortController();
  if (lifetime?.aborted || isGone(res)) {
    controller.abort(lifetime?.aborted ? lifetime.reason : new ClientGone());
    return controller.signal;
  }
  const end = () => controller.abort(lifetime?.reason);
  lifetime?.addEventListener('abort', end, { once: true });
  res.once('close', () => {
    lifetime?.removeEventListener('abort', end);
    const whole = 'stream' in res ? res.writableEnded : res.writableFinished;
    if (!whole) controller.abort(new ClientGone());
  });
  return controller.signal;
}

/** The body of a request. Unlike the request's own iterator it can be left early without cutting the connection, so that an answer can still be given. */
export function bodyOf(req: HttpRequest): AsyncIterable<Buffer> {
  return req.iterator({ destroyOnReturn: false });
}

/** Takes the rest of a body that nobody wants off the wire: a client that is still sending reads no answer. */
export function discardBody(req: HttpRequest): void {
  if (req.readableEnded || req.destroyed) return;
  req.on('error', () => undefined);
  req.resume();
}

/** Whether nobody is there to take an answer. */
export function isGone(res: HttpResponse): boolean {
  return res.destroyed || ('stream' in res ? res.stream === undefined || res.stream.destroyed : res.closed);
}

function drained(res: HttpResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (failure?: Error) => {
      res.off('drain', onDrain);
      res.off('close', onClose);
      if (failure) reject(failure);
      else resolve();
    };
    const onDrain = () => settle();
    const onClose = () => settle(new ClientGone());
    res.on('drain', onDrain);
    res.on('close', onClose);
  });
}
