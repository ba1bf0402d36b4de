import type { OutgoingHttpHeaders } from 'node:http';
import path from 'node:path';
import { Readable } from 'node:stream';
import { constants, createGzip, gzipSync } from 'node:zlib';
import type { OpenedRead } from '../agent/contract.ts';
import { AgentError } from '../agent/errors.ts';
import { SandbarError } from '../core/errors.ts';
import { freeMemory } from '../core/free-memory.ts';
import {
  abortResponse,
  type HttpRequest,
  type HttpResponse,
  headerOf,
  sendJson,
  writeChunk,
  writeHead,
} from '../core/http.ts';
import { acceptsIdentity, type ContentCoding, chooseCoding } from './accept-encoding.ts';
import { asksForStoredBytes, checkConditions, rangeHolds, validatorsOf } from './conditional.ts';
import { contentDisposition, contentTypeByName, SNIFF_BYTES, sniffContentType } from './content-type.ts';
import type { SandboxCall } from './context.ts';
import { readFileRange } from './file-transfer.ts';
import { parseRange } from './range.ts';
import { commonFileError } from './rest-error.ts';

/** Larger files are sent as they are where the client takes that: to compress them costs more time than it saves. */
const MAX_GZIP_BYTES = 4 * 1024 * 1024;
const SMALL_BYTES = 64 * 1024;
/** A file that says it is empty may not be: those of /proc. They are read to their end, up to this. */
const MAX_UNSIZED_BYTES = 16 * 1024 * 1024;

/** GET /files: the bytes of a file, whole or a range, as they are or compressed. */
export async function download(
  call: SandboxCall,
  requestedPath: string,
  req: HttpRequest,
  res: HttpResponse,
): Promise<void> {
  const coding = chooseCoding(headerOf(req.headers, 'accept-encoding'));
  if (coding === undefined) {
    const message = 'error parsing Accept-Encoding: no acceptable encoding found, supported: [identity, gzip]';
    sendJson(res, 406, { code: 406, message });
    return;
  }
  const file = await openFile(call, requestedPath);
  try {
    if (file.size === 0) await sendUnsized(call, file, res);
    else if (useGzip(coding, file, req)) await sendCompressed(call, file, res);
    else await sendStored(call, file, req, res);
  } catch (error) {
    // Once the head is out the only honest answer to a failure is to break off.
    if (res.headersSent) abortResponse(res);
    throw error;
  } finally {
    await call.agent.closeFile(file.handle).catch(() => undefined);
  }
}

async function openFile(call: SandboxCall, requestedPath: string): Promise<OpenedRead> {
  try {
    return await call.agent.openRead({ user: call.user, path: requestedPath }, call.gone);
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    const where = error.path || requestedPath;
    if (error.code === 'NOT_FOUND') throw new SandbarError('not_found', `path '${where}' does not exist`);
    if (error.code === 'IS_DIRECTORY') throw new SandbarError('invalid', `path '${where}' is a directory`);
    if (error.code === 'NOT_REGULAR') throw new SandbarError('invalid', `path '${where}' is not a regular file`);
    if (error.code === 'NOT_DIRECTORY') {
      throw new SandbarError('internal', `error checking if path exists '${where}': ${error.message}`);
    }
    throw commonFileError(error, call.user);
  }
}

function useGzip(coding: ContentCoding, file: OpenedRead, req: HttpRequest): boolean {
  if (coding !== 'gzip' || asksForStoredBytes(req.headers)) return false;
  return file.size <= MAX_GZIP_BYTES || !acceptsIdentity(headerOf(req.headers, 'accept-encoding'));
}

async function sendStored(call: SandboxCall, file: OpenedRead, req: HttpRequest, res: HttpResponse): Promise<void> {
  const validators = validatorsOf(file.size, file.mtimeNs);
  const headers: OutgoingHttpHeaders = {
    ...baseHeaders(file),
    'accept-ranges': 'bytes',
    'last-modified': new Date(validators.modifiedSeconds * 1000).toUTCString(),
    etag: validators.etag,
  };
  const verdict = checkConditions(req.headers, validators);
  if (verdict !== 'send') {
    writeHead(res, verdict === 'not-modified' ? 304 : 412, headers);
    res.end();
    return;
  }
  const rangeHeader = rangeHolds(req.headers, validators) ? headerOf(req.headers, 'range') : undefined;
  const range = parseRange(rangeHeader, file.size);
  if (range === 'unsatisfiable') {
    const body = { code: 416, message: 'invalid range: failed to overlap' };
    sendJson(res, 416, body, { ...headers, 'content-range': `bytes */${file.size}` });
    return;
  }
  const { start, end } = range === 'all' ? { start: 0, end: file.size } : range;
  const pieces = readFileRange(call.agent, file.handle, start, end, call.gone);
  try {
    const first = await pieces.next();
    const head = start === 0 && !first.done ? first.value : undefined;
    writeHead(res, range === 'all' ? 200 : 206, {
      ...headers,
      'content-type': contentTypeByName(path.posix.basename(file.path)) ?? (await sniff(call, file, head)),
      'content-length': end - start,
      ...(range !== 'all' && { 'content-range': `bytes ${start}-${end - 1}/${file.size}` }),
    });
    let sent = 0;
    for (let piece = first; !piece.done; piece = await pieces.next()) {
      const bytes = piece.value;
      sent += bytes.length;
      await writeChunk(res, bytes, (error) => {
        if (!error) freeMemory(bytes);
      });
    }
    if (sent !== end - start)
      throw new SandbarError('internal', `file '${file.path}' became shorter while it was sent`);
    res.end();
  } finally {
    await pieces.return(undefined);
  }
}

async function sendCompressed(call: SandboxCall, file: OpenedRead, res: HttpResponse): Promise<void> {
  const type = contentTypeByName(path.posix.basename(file.path)) ?? 'application/octet-stream';
  const headers = { ...baseHeaders(file), 'content-type': type, 'content-encoding': 'gzip' };
  const pieces = readFileRange(call.agent, file.handle, 0, file.size, call.gone);
  // A small file is not worth a stream and a thread.
  if (file.size <= SMALL_BYTES) {
    const body = gzipSync(Buffer.concat(await Array.fromAsync(pieces)), { level: constants.Z_BEST_SPEED });
    writeHead(res, 200, headers);
    res.end(body);
    return;
  }
  const source = Readable.from(pieces, { objectMode: false });
  const gzip = createGzip({ level: constants.Z_BEST_SPEED });
  source.on('error', (error) => gzip.destroy(error));
  try {
    writeHead(res, 200, headers);
    for await (const piece of source.pipe(gzip)) await writeChunk(res, piece);
    res.end();
  } finally {
    source.destroy();
  }
}

async function sendUnsized(call: SandboxCall, file: OpenedRead, res: HttpResponse): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of readFileRange(call.agent, file.handle, 0, MAX_UNSIZED_BYTES, call.gone)) pieces.push(piece);
  const body = Buffer.concat(pieces);
  const type = contentTypeByName(path.posix.basename(file.path)) ?? sniffContentType(body);
  writeHead(res, 200, { ...baseHeaders(file), 'content-type': type, 'content-length': body.length });
  res.end(body);
}

/** The type by content: by its beginning, which is asked for where it is not at hand. */
async function sniff(call: SandboxCall, file: OpenedRead, head: Buffer | undefined): Promise<string> {
  if (head !== undefined && head.length >= Math.min(SNIFF_BYTES, file.size)) return sniffContentType(head);
  return sniffContentType(
    Buffer.concat(await Array.fromAsync(call.agent.readAt(file.handle, 0, SNIFF_BYTES, call.gone))),
  );
}

function baseHeaders(file: OpenedRead): OutgoingHttpHeaders {
  return { 'content-disposition': contentDisposition(path.posix.basename(file.path)), vary: 'Accept-Encoding' };
}
