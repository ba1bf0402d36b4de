import {
  type ClientHttp2Session,
  connect,
  constants,
  type Http2ServerRequest,
  type Http2ServerResponse,
} from 'node:http2';
import type { Duplex } from 'node:stream';
import { abortResponse } from '../core/http.ts';
import { asObject, forwardedHeaders, type RequestTarget } from './headers.ts';

/** Begins HTTP/2 with prior knowledge on a connection into a sandbox. */
export function openGuestSession(connection: Duplex): ClientHttp2Session {
  const session = connect('http://sandbox', { createConnection: () => connection });
  session.on('error', () => session.destroy());
  return session;
}

/** gRPC is spoken over HTTP/2 alone: its status comes in trailers, and both sides talk at once. */
export function isGrpc(contentType: string | undefined): boolean {
  return contentType?.startsWith('application/grpc') === true && !contentType.startsWith('application/grpc-web');
}

/** Passes a stream on over HTTP/2 and its answer back, trailers included. Rejects while nothing has been answered yet. */
export function forwardHttp2(
  session: ClientHttp2Session,
  target: RequestTarget,
  req: Http2ServerRequest,
  res: Http2ServerResponse,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const { host, ...headers } = asObject(forwardedHeaders(req, target));
    const outgoing = session.request(
      {
        ...headers,
        te: 'trailers',
        ':method': req.method,
        ':path': req.url,
        ':scheme': 'http',
        ':authority': String(host ?? ''),
      },
      { endStream: req.stream.endAfterHeaders },
    );
    outgoing.on('response', ({ ':status': status, ...answer }) => {
      res.writeHead(status ?? 502, answer);
      outgoing.on('trailers', (trailers) => res.addTrailers(trailers as Record<string, string>));
      outgoing.on('end', () => res.end());
      outgoing.pipe(res.stream, { end: false });
      resolve();
    });
    outgoing.on('error', (error) => {
      if (!res.headersSent) reject(error);
      else {
        abortResponse(res);
        resolve();
      }
    });
    outgoing.on('close', () => {
      if (outgoing.rstCode !== constants.NGHTTP2_NO_ERROR && res.headersSent && !res.writableEnded) abortResponse(res);
    });
    res.once('close', () => outgoing.close(constants.NGHTTP2_CANCEL));
    if (!req.stream.endAfterHeaders) req.pipe(outgoing);
  });
}
