import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { asObject, bodyFraming, forwardedHeaders, returnedHeaders } from './headers.ts';

function request(rawHeaders: string[], method = 'GET'): IncomingMessage {
  const headers = Object.fromEntries(
    Array.from({ length: rawHeaders.length / 2 }, (_, i) => [rawHeaders[2 * i]!.toLowerCase(), rawHeaders[2 * i + 1]]),
  );
  return { rawHeaders, headers, method } as unknown as IncomingMessage;
}

test('headers about the connection and claims about the way are not passed on', () => {
  const req = request([
    ...['Host', '3000-iabc.sandbar.local'],
    ...['Connection', 'keep-alive, X-Private'],
    ...['X-Private', '1'],
    ...['Forwarded', 'for=1.2.3.4'],
    ...['X-Forwarded-For', '1.2.3.4'],
    ...['e2b-traffic-access-token', 'secret'],
    ...['Transfer-Encoding', 'chunked'],
    ...['Expect', '100-continue'],
    ...['X-Kept', 'yes'],
  ]);
  expect(forwardedHeaders(req, { port: 3000, maskRequestHost: undefined })).toEqual([
    'Host',
    '3000-iabc.sandbar.local',
    'X-Kept',
    'yes',
  ]);
});

test('a masked host replaces the original, which is told beside', () => {
  const req = request(['Host', '3000-iabc.sandbar.local', 'Accept', '*/*']);
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text users write.
  expect(forwardedHeaders(req, { port: 3000, maskRequestHost: 'localhost:${PORT}' })).toEqual([
    ...['Host', 'localhost:3000'],
    ...['Accept', '*/*'],
    ...['X-Forwarded-Host', '3000-iabc.sandbar.local'],
  ]);
});

test.each([
  [['Content-Length', '5'], 'POST', []],
  [['Transfer-Encoding', 'chunked'], 'GET', ['Transfer-Encoding', 'chunked']],
  [[], 'GET', []],
  [[], 'POST', ['Content-Length', '0']],
])('the body of a request with %j, %s', (headers, method, framing) => {
  expect(bodyFraming(request(['Host', 'x', ...headers], method))).toEqual(framing);
});

test('of an answer, repeated headers stay repeated', () => {
  const raw = ['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'Connection', 'close', 'Keep-Alive', 'timeout=5', 'X-A', '1'];
  const returned = returnedHeaders(raw, { connection: 'close' });
  expect(returned).toEqual(['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'X-A', '1']);
  expect(asObject(returned)).toEqual({ 'set-cookie': ['a=1', 'b=2'], 'x-a': '1' });
});
