import { isAgentError } from '../agent/errors.ts';
import { SandbarError } from '../core/errors.ts';
import { bodyOf, type HttpRequest, type HttpResponse, sendJson } from '../core/http.ts';
import type { SandboxCall } from './context.ts';
import { commonFileError } from './rest-error.ts';

const MAX_BODY_BYTES = 1024 * 1024;

interface ComposeRequest {
  sources: string[];
  destination: string;
  username: string;
}

/** POST /files/compose: joins files into one, atomically, and removes them. */
export async function compose(call: SandboxCall, req: HttpRequest, res: HttpResponse): Promise<void> {
  const { sources, destination, username } = parseComposeRequest(await readBody(req));
  try {
    const entry = await call.agent.compose({ user: username, sources, destination }, call.gone);
    sendJson(res, 200, { path: entry.path, name: entry.name, type: 'file' });
  } catch (error) {
    if (isAgentError(error, 'NOT_FOUND')) throw new SandbarError('not_found', `source file not found: ${error.path}`);
    if (isAgentError(error, 'NOT_REGULAR') || isAgentError(error, 'IS_DIRECTORY')) {
      throw new SandbarError('invalid', `source is not a regular file: ${error.path}`);
    }
    if (isAgentError(error, 'INVALID')) throw new SandbarError('invalid', error.message);
    throw commonFileError(error, username);
  }
}

/** Checks the body by hand: three fields do not need a schema. */
export function parseComposeRequest(text: string): ComposeRequest {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new SandbarError('invalid', 'error parsing request body: not JSON');
  }
  if (typeof body !== 'object' || body === null) throw new SandbarError('invalid', 'request body must be an object');
  const { source_paths: sources, destination, username = '' } = body as Record<string, unknown>;
  if (!Array.isArray(sources) || sources.length === 0)
    throw new SandbarError('invalid', 'source_paths must not be empty');
  if (!sources.every((source) => typeof source === 'string' && source !== '')) {
    throw new SandbarError('invalid', 'source_paths must be paths');
  }
  if (typeof destination !== 'string' || destination === '') {
    throw new SandbarError('invalid', 'destination must not be empty');
  }
  if (typeof username !== 'string') throw new SandbarError('invalid', 'username must be a string');
  if (sources.includes(destination)) throw new SandbarError('invalid', 'destination must not be one of the sources');
  return { sources, destination, username };
}

async function readBody(req: HttpRequest): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of bodyOf(req)) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw new SandbarError('invalid', `request body is larger than ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
