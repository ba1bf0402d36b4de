import { type IncomingHttpHeaders, type OutgoingHttpHeaders, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { abortResponse, type HttpResponse, headerOf, sendBytes } from './http.ts';

/** Why a request did not reach a sandbox, as told to whoever asked. */
export interface Answer {
  status: number;
  message: string;
  sandboxId?: string;
  port?: number;
  path?: string;
}

export function sandboxNotFound(sandboxId: string): Answer {
  return { status: 502, message: 'The sandbox was not found', sandboxId };
}

export function portNotOpen(sandboxId: string, port: number): Answer {
  return { status: 502, message: 'The sandbox is running but port is not open', sandboxId, port };
}

export function noAnswer(sandboxId: string, port: number): Answer {
  return { status: 502, message: 'The sandbox closed the connection without an answer', sandboxId, port };
}

export function trafficTokenMissing(sandboxId: string): Answer {
  const message = "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing";
  return { status: 403, message, sandboxId };
}

export function trafficTokenWrong(sandboxId: string): Answer {
  const message =
    "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid";
  return { status: 403, message, sandboxId };
}

export function tooManyConnections(sandboxId: string, limit: number): Answer {
  const message = `The sandbox has too many concurrent incoming connections (limit: ${limit})`;
  return { status: 429, message, sandboxId };
}

export function resumeForbidden(sandboxId: string): Answer {
  const message = "This sandbox can't be resumed with the credentials provided. Check your access token and try again.";
  return { status: 403, message, sandboxId };
}

export function stillTransitioning(sandboxId: string): Answer {
  return { status: 409, message: 'The sandbox is still transitioning. Try again in a moment.', sandboxId };
}

export function limitReached(sandboxId: string, message: string): Answer {
  return { status: 429, message: message || 'Sandbox limit reached', sandboxId };
}

/** An answer as bytes: a page for somebody who opened the URL in a browser, JSON for every program. */
export function renderAnswer(
  answer: Answer,
  headers: IncomingHttpHeaders,
): { body: Buffer; headers: OutgoingHttpHeaders } {
  if (isBrowserNavigation(headers)) {
    return { body: Buffer.from(page(answer)), headers: { 'content-type': 'text/html; charset=utf-8' } };
  }
  const { status, ...rest } = answer;
  return {
    body: Buffer.from(JSON.stringify({ ...rest, code: status })),
    headers: { 'content-type': 'application/json; charset=utf-8' },
  };
}

export function sendAnswer(res: HttpResponse, answer: Answer, requestHeaders: IncomingHttpHeaders): void {
  const { body, headers } = renderAnswer(answer, requestHeaders);
  sendBytes(res, answer.status, body, headers);
}

/** Answers on a connection that asked to become something else, and closes it. */
export function refuseUpgrade(socket: Duplex, answer: Answer, requestHeaders: IncomingHttpHeaders): void {
  const { body, headers } = renderAnswer(answer, requestHeaders);
  const head = [
    `HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status] ?? ''}`,
    `Content-Type: ${headers['content-type']}`,
    `Content-Length: ${body.length}`,
    'Connection: close',
  ];
  socket.end(Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]));
}

/**
 * The sandbox has ended while a request was under way. An answer that has begun is broken off, never ended cleanly: by that
 * the client knows it was not the whole of it. One that has not begun is what every later request gets.
 */
export function endWithSandbox(sandboxId: string, res: HttpResponse, requestHeaders: IncomingHttpHeaders): void {
  if (res.headersSent) abortResponse(res);
  else sendAnswer(res, sandboxNotFound(sandboxId), requestHeaders);
}

/** Somebody who opened a URL in a browser, as opposed to a script on a page or a program. */
export function isBrowserNavigation(headers: IncomingHttpHeaders): boolean {
  const agent = headers['user-agent'] ?? '';
  if (!/Mozilla\/|Chrome\/|Safari\/|Firefox\/|Edg\/|Opera\//.test(agent)) return false;
  if (headers.accept?.includes('application/json')) return false;
  if (headers['x-requested-with'] !== undefined) return false;
  const mode = headerOf(headers, 'sec-fetch-mode');
  return mode === undefined || !['cors', 'no-cors', 'same-origin', 'websocket'].includes(mode);
}

function page({ status, message, sandboxId, port }: Answer): string {
  const about = [sandboxId && `Sandbox <code>${escaped(sandboxId)}</code>`, port && `port <code>${port}</code>`];
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${status} · Sandbar</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:18vh auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.3rem}p{color:#555}code{font-size:.95em}@media(prefers-color-scheme:dark){body{color:#eee;background:#181818}p{color:#aaa}}</style>
<h1>${escaped(message)}</h1>
<p>${about.filter(Boolean).join(', ')}</p>
<p>Status ${status}</p>
</html>
`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
}
