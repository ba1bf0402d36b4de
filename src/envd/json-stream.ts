import { type DescMessage, fromJsonString, type MessageShape } from '@bufbuild/protobuf';
import {
  Code,
  ConnectError,
  createContextValues,
  createHandlerContext,
  type HandlerContext,
} from '@connectrpc/connect';
import { endStreamFlag, endStreamToJson } from '@connectrpc/connect/protocol-connect';
import {
  bodyOf,
  ClientGone,
  departure,
  type HttpRequest,
  type HttpResponse,
  headerOf,
  writeChunk,
  writeHead,
} from '../core/http.ts';
import { type SandboxCall, sandboxCallKey } from './context.ts';
import type { ProcessEventInit } from './process-events.ts';
import { encodeProcessEvent, message } from './process-json.ts';

/** A call whose answer is a stream of process events. */
export interface EventStreamMethod<I extends DescMessage> {
  method: Parameters<typeof createHandlerContext>[0]['method'] & { input: I };
  run(request: MessageShape<I>, context: HandlerContext): AsyncIterable<{ event?: ProcessEventInit | undefined }>;
}

const CONTENT_TYPE = 'application/connect+json';
const FRAME_HEADER_BYTES = 5;
const WELL_ENDED = message('{}', endStreamFlag);
/** Nobody sees it: made once, since an error is slow to make. */
const OVER = new ConnectError('the call is over', Code.Canceled);

/**
 * Whether a request is of the plain kind that is served here: Connect, JSON, not compressed, its headers in order. Everything else,
 * errors included, is left to the library.
 */
export function isPlainJsonStream(req: HttpRequest): boolean {
  const coding = headerOf(req.headers, 'connect-content-encoding') ?? 'identity';
  return (
    req.method === 'POST' &&
    headerOf(req.headers, 'content-type') === CONTENT_TYPE &&
    headerOf(req.headers, 'connect-protocol-version') === '1' &&
    coding === 'identity' &&
    /^\d{0,9}$/.test(headerOf(req.headers, 'connect-timeout-ms') ?? '')
  );
}

/** Serves such a request: the service's own events, encoded by hand. */
export async function serveEventStream<I extends DescMessage>(
  stream: EventStreamMethod<I>,
  call: SandboxCall,
  req: HttpRequest,
  res: HttpResponse,
  readMaxBytes: number,
): Promise<void> {
  const context = contextOf(stream, call, req, res);
  let failure: ConnectError | undefined;
  try {
    const request = parseRequest(stream.method.input, await readFrame(req, readMaxBytes));
    for await (const { event } of stream.run(request, context)) {
      if (!res.headersSent) writeHead(res, 200, { 'content-type': CONTENT_TYPE });
      if (event) await writeChunk(res, encodeProcessEvent(event));
    }
  } catch (error) {
    if (error instanceof ClientGone || call.gone.aborted) return;
    failure = ConnectError.from(error, Code.Internal);
  } finally {
    context.abort(OVER);
  }
  if (!res.headersSent) writeHead(res, 200, { 'content-type': CONTENT_TYPE });
  if (failure === undefined) res.end(WELL_ENDED);
  else res.end(message(JSON.stringify(endStreamToJson(new Headers(), failure, undefined)), endStreamFlag));
}

function contextOf<I extends DescMessage>(
  { method }: EventStreamMethod<I>,
  call: SandboxCall,
  req: HttpRequest,
  res: HttpResponse,
): ReturnType<typeof createHandlerContext> {
  const timeout = headerOf(req.headers, 'connect-timeout-ms');
  const requestHeader = new Headers();
  for (const name of ['keepalive-ping-interval', 'x-sandbar-replay']) {
    const value = headerOf(req.headers, name);
    if (value !== undefined) requestHeader.set(name, value);
  }
  return createHandlerContext({
    service: method.parent,
    method,
    protocolName: 'connect',
    requestMethod: 'POST',
    url: `http://sandbox/${method.parent.typeName}/${method.name}`,
    ...(timeout && { timeoutMs: Number(timeout) }),
    requestSignal: departure(res),
    requestHeader,
    contextValues: createContextValues().set(sandboxCallKey, call),
  });
}

/** The one message of the request. */
async function readFrame(req: HttpRequest, readMaxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of bodyOf(req)) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > readMaxBytes + FRAME_HEADER_BYTES) throw tooLarge(readMaxBytes);
  }
  const body = Buffer.concat(chunks);
  if (body.length === 0) throw new ConnectError('protocol error: missing input message', Code.Unimplemented);
  if (body.length < FRAME_HEADER_BYTES) throw incomplete();
  if (body.readUInt32BE(1) > readMaxBytes) throw tooLarge(readMaxBytes);
  const end = FRAME_HEADER_BYTES + body.readUInt32BE(1);
  if (body.length < end) throw incomplete();
  if (body[0] !== 0) throw new ConnectError(`protocol error: unexpected flags ${body[0]}`, Code.InvalidArgument);
  if (body.length > end) throw new ConnectError('protocol error: received extra input message', Code.Unimplemented);
  return body.subarray(FRAME_HEADER_BYTES, end);
}

function parseRequest<I extends DescMessage>(schema: I, payload: Buffer): MessageShape<I> {
  try {
    return fromJsonString(schema, payload.toString('utf8'), { ignoreUnknownFields: true });
  } catch (error) {
    throw ConnectError.from(error, Code.InvalidArgument);
  }
}

function incomplete(): ConnectError {
  return new ConnectError('protocol error: incomplete envelope', Code.InvalidArgument);
}

function tooLarge(readMaxBytes: number): ConnectError {
  return new ConnectError(
    `message size is larger than configured readMaxBytes ${readMaxBytes}`,
    Code.ResourceExhausted,
  );
}
