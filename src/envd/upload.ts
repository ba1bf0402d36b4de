import path from 'node:path';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { AgentError, isAgentError } from '../agent/errors.ts';
import { errnoOf, messageOf, SandbarError } from '../core/errors.ts';
import { bodyOf, type HttpRequest, type HttpResponse, headerOf, sendJson } from '../core/http.ts';
import type { SandboxCall } from './context.ts';
import { writeFile } from './file-transfer.ts';
import { metadataFromHeaders } from './metadata-headers.ts';
import { boundaryOf, type Part, parseMultipart } from './multipart.ts';
import { commonFileError } from './rest-error.ts';
import type { TurnTaking } from './turns.ts';

/** A file that was written, as the answer tells it. */
interface WrittenFile {
  path: string;
  name: string;
  type: 'file';
  metadata?: Record<string, string>;
}

/** How long an upload waits for another to the same path. */
const TURN_LIMIT_MS = 5_000;

export type UploadHandler = (
  call: SandboxCall,
  requestedPath: string | undefined,
  req: HttpRequest,
  res: HttpResponse,
) => Promise<void>;

/** POST /files: one file as the raw body, or any number as parts of a form. */
export function createUploadHandler(turns: TurnTaking): UploadHandler {
  return async (call, requestedPath, req, res) => {
    const metadata = metadataFromHeaders(req.headers);
    const contentType = headerOf(req.headers, 'content-type') ?? '';
    const mediaType = contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
    const storeFile: StoreFile = async (target, body) => {
      const done = await turns.take(`${call.row.id} ${call.user} ${target}`, TURN_LIMIT_MS);
      try {
        return await store(call, target, body, metadata);
      } finally {
        done();
      }
    };
    let written: WrittenFile[];
    if (mediaType === 'application/octet-stream') {
      if (!requestedPath) throw new SandbarError('invalid', 'path query parameter is required for raw body upload');
      written = [await storeFile(requestedPath, decodedBody(req))];
    } else if (mediaType.startsWith('multipart/')) {
      const boundary = boundaryOf(contentType);
      if (boundary === undefined) throw new SandbarError('invalid', 'error parsing multipart form: no boundary');
      written = await storeParts(call, requestedPath, parseMultipart(decodedBody(req), boundary), storeFile);
    } else {
      throw new SandbarError('invalid', `unsupported content type: ${contentType}`);
    }
    sendJson(res, 200, written);
  };
}

type StoreFile = (target: string, body: AsyncIterable<Buffer>) => Promise<WrittenFile>;

async function storeParts(
  call: SandboxCall,
  requestedPath: string | undefined,
  parts: AsyncIterable<Part>,
  storeFile: StoreFile,
): Promise<WrittenFile[]> {
  const written: WrittenFile[] = [];
  for await (const part of parts) {
    if (part.name !== 'file') continue;
    const target = requestedPath || part.filename || '';
    if (await isAmong(call, target, written)) {
      throw new SandbarError(
        'invalid',
        `you cannot upload multiple files to the same path '${target}' in one upload request, only the first specified file was uploaded`,
      );
    }
    written.push(await storeFile(target, part.body));
  }
  return written;
}

/** Whether a path leads to a file of this upload. Asked before the file is opened, since opening empties it. */
async function isAmong(call: SandboxCall, target: string, written: readonly WrittenFile[]): Promise<boolean> {
  if (written.length === 0) return false;
  try {
    const entry = await call.agent.stat({ user: call.user, path: target }, call.gone);
    return written.some((file) => file.path === entry.path);
  } catch (error) {
    if (error instanceof AgentError) return false;
    throw error;
  }
}

async function store(
  call: SandboxCall,
  target: string,
  body: AsyncIterable<Buffer>,
  metadata: Record<string, string>,
): Promise<WrittenFile> {
  try {
    const request = { user: call.user, path: target, truncate: true, metadata };
    const file = await call.agent.openWrite(request, call.gone);
    try {
      await writeFile(call.agent, file.handle, body);
    } finally {
      await call.agent.closeFile(file.handle);
    }
    return {
      path: file.path,
      name: path.posix.basename(file.path),
      type: 'file',
      ...(Object.keys(metadata).length > 0 && { metadata }),
    };
  } catch (error) {
    const where = error instanceof AgentError ? error.path || target : target;
    if (isAgentError(error, 'IS_DIRECTORY')) throw new SandbarError('invalid', `path is a directory: ${where}`);
    if (isAgentError(error, 'NOT_DIRECTORY') || isAgentError(error, 'EXISTS')) {
      throw new SandbarError('internal', `error ensuring directories: path is a file: ${where}`);
    }
    throw commonFileError(error, call.user);
  }
}

/** The body with its content coding taken off. */
function decodedBody(req: HttpRequest): AsyncIterable<Buffer> {
  const coding = (headerOf(req.headers, 'content-encoding') ?? 'identity').trim().toLowerCase();
  if (coding === 'identity' || coding === '') return bodyOf(req);
  if (coding !== 'gzip') throw new SandbarError('invalid', `unsupported content encoding: ${coding}`);
  return gunzipped(req);
}

async function* gunzipped(source: Readable): AsyncGenerator<Buffer> {
  const gunzip = createGunzip();
  const onError = (error: Error) => gunzip.destroy(error);
  source.once('error', onError);
  try {
    for await (const chunk of source.pipe(gunzip)) yield chunk;
  } catch (error) {
    if (!errnoOf(error)?.startsWith('Z_')) throw error;
    throw new SandbarError('invalid', `error decompressing the request body: ${messageOf(error)}`);
  } finally {
    source.off('error', onError);
    source.unpipe(gunzip);
    gunzip.destroy();
  }
}
