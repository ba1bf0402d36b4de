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

/** Writes and waits until more may be written. Rejects when the client has gone. */
export async function writeChunk(res: HttpResponse, chunk: Uint8Array): Promise<void> {
  if (isGone(res)) throw new ClientGone();
  const ready = 'stream' in res ? res.write(chunk) : res.write(chunk);
  if (!ready) await drained(res);
}

/** Nobody reads the answer any more. */
export class ClientGone extends Error {
  constructor() {
    super('the client has closed the connection');
    this.name = 'ClientGone';
  }
}

/** Aborts when the client leaves before it has the whole answer. */
export function departure(res: HttpResponse): AbortSignal {
  const controller = new AbortController();
  if (isGone(res)) controller.abort(new ClientGone());
  else {
    res.once('close', () => {
      if (!res.writableFinished) controller.abort(new ClientGone());
    });
  }
  return controller.signal;
}

function isGone(res: HttpResponse): boolean {
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
