import type { IncomingHttpHeaders } from 'node:http';
import { type HttpRequest, headerOf, hostOf } from '../core/http.ts';

/** Headers about one connection, which a proxy does not pass on (RFC 9110 §7.6.1). */
const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** Answered here: Node has said 100 Continue already. */
const answeredHere = new Set(['expect']);
/** Opens the way in; what is inside has no use for it. */
const TRAFFIC_TOKEN = 'e2b-traffic-access-token';

// biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text users write, not a template of ours.
const PORT_PLACE = '${PORT}';

export interface RequestTarget {
  port: number;
  /** Host that the program inside sees instead of the one that was asked for; may contain `${PORT}`. */
  maskRequestHost: string | undefined;
}

/** Names and values in turn, as Node's rawHeaders, for a request to a program inside over HTTP/1.1. */
export function forwardedHeaders(req: HttpRequest, target: RequestTarget): string[] {
  const dropped = namedByConnection(req.headers);
  const original = hostOf(req);
  const masked = target.maskRequestHost?.replaceAll(PORT_PLACE, String(target.port));
  const headers = ['Host', masked ?? original];
  for (const [name, value] of pairs(req.rawHeaders)) {
    const key = name.toLowerCase();
    if (key.startsWith(':') || key === 'host' || isDropped(key, dropped) || isForwarding(key)) continue;
    headers.push(name, value);
  }
  if (masked !== undefined) headers.push('X-Forwarded-Host', original);
  return headers;
}

/** Names and values in turn of a request that another process of the service answers: all but what is about the connection, and the host. */
export function endToEndHeaders(req: HttpRequest): string[] {
  const dropped = namedByConnection(req.headers);
  const headers: string[] = [];
  for (const [name, value] of pairs(req.rawHeaders)) {
    const key = name.toLowerCase();
    if (key.startsWith(':') || key === 'host' || isDropped(key, dropped) || answeredHere.has(key)) continue;
    headers.push(name, value);
  }
  return headers;
}

/** Whether a body follows the head of a request. */
export function hasBody(req: HttpRequest): boolean {
  if ('stream' in req) return !req.stream.endAfterHeaders;
  const length = req.headers['content-length'];
  return req.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/** How the body is framed on the way in where the client's own header does not say it. */
export function bodyFraming(req: HttpRequest): string[] {
  if (req.headers['content-length'] !== undefined) return [];
  if (hasBody(req)) return ['Transfer-Encoding', 'chunked'];
  // A request that could have a body says that it has none.
  return ['POST', 'PUT', 'PATCH'].includes(req.method ?? '') ? ['Content-Length', '0'] : [];
}

/** Names and values in turn of an answer, without what was about the connection to the program. */
export function returnedHeaders(rawHeaders: readonly string[], headers: IncomingHttpHeaders): string[] {
  const dropped = namedByConnection(headers);
  const result: string[] = [];
  for (const [name, value] of pairs(rawHeaders)) {
    if (!isDropped(name.toLowerCase(), dropped)) result.push(name, value);
  }
  return result;
}

/** The same as an object, for HTTP/2. */
export function asObject(flat: readonly string[]): Record<string, string | string[]> {
  const result: Record<string, string | string[]> = {};
  for (const [name, value] of pairs(flat)) {
    const key = name.toLowerCase();
    const before = result[key];
    result[key] = before === undefined ? value : [before, value].flat();
  }
  return result;
}

/** The token by which private traffic is let in. */
export function trafficTokenOf(headers: IncomingHttpHeaders): string | undefined {
  return headerOf(headers, TRAFFIC_TOKEN);
}

function* pairs(flat: readonly string[]): Generator<[string, string]> {
  for (let index = 0; index + 1 < flat.length; index += 2) yield [flat[index] ?? '', flat[index + 1] ?? ''];
}

function namedByConnection(headers: IncomingHttpHeaders): Set<string> {
  const names = (headerOf(headers, 'connection') ?? '').split(',');
  return new Set(names.map((name) => name.trim().toLowerCase()));
}

function isDropped(key: string, named: ReadonlySet<string>): boolean {
  return hopByHop.has(key) || named.has(key);
}

/** What a client claims about the way it came is not believed, and a token does not leave the gateway. */
function isForwarding(key: string): boolean {
  return key === 'forwarded' || key.startsWith('x-forwarded-') || answeredHere.has(key) || key === TRAFFIC_TOKEN;
}
