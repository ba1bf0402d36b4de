import { type HttpRequest, type HttpResponse, headerOf, writeHead } from '../core/http.ts';

const exposed = [
  'Grpc-Status',
  'Grpc-Message',
  'Grpc-Status-Details-Bin',
  'Connect-Content-Encoding',
  'Content-Disposition',
  'Content-Range',
  'Accept-Ranges',
  'ETag',
].join(', ');

/** Lets pages of every origin read the answers. True when the request was a preflight and has been answered. */
export function applyCors(req: HttpRequest, res: HttpResponse): boolean {
  res.setHeader('access-control-allow-origin', '*');
  res.setHeader('access-control-expose-headers', exposed);
  if (req.method !== 'OPTIONS') return false;
  writeHead(res, 204, {
    'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
    // A star does not cover Authorization: what is asked for is named.
    'access-control-allow-headers': headerOf(req.headers, 'access-control-request-headers') ?? '*',
    'access-control-max-age': '7200',
    vary: 'Access-Control-Request-Headers',
  });
  res.end();
  return true;
}
