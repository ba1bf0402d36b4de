import { type Agent, type ClientRequest, type IncomingMessage, request } from 'node:http';
import { abortResponse, type HttpRequest, type HttpResponse } from '../core/http.ts';
import { asObject, bodyFraming, hasBody, returnedHeaders } from './headers.ts';

/**
 * Passes a request on over HTTP/1.1, with these headers, and its answer back, both as they arrive. Rejects while nothing has been
 * answered yet.
 */
export function forwardHttp1(agent: Agent, headers: string[], req: HttpRequest, res: HttpResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    const outgoing = request({
      agent,
      method: req.method ?? 'GET',
      path: req.url ?? '/',
      headers: [...headers, ...bodyFraming(req)],
      setHost: false,
    });
    outgoing.on('response', (answer) => {
      passBack(answer, res);
      resolve();
    });
    outgoing.on('error', (error) => {
      if (mayRepeat(outgoing, req, res)) resolve(forwardHttp1(agent, headers, req, res));
      else if (res.headersSent) {
        abortResponse(res);
        resolve();
      } else reject(error);
    });
    // Either the answer is whole, and destroying what is over does nothing, or the client has left.
    res.once('close', () => outgoing.destroy());
    req.once('error', () => outgoing.destroy());
    if (hasBody(req)) req.pipe(outgoing);
    else outgoing.end();
  });
}

function passBack(answer: IncomingMessage, res: HttpResponse): void {
  const headers = returnedHeaders(answer.rawHeaders, answer.headers);
  const status = answer.statusCode ?? 502;
  if ('stream' in res) res.writeHead(status, asObject(headers));
  else {
    res.writeHead(status, answer.statusMessage ?? '', headers);
    // The head goes out at once: a stream of events may have nothing to say for a long time.
    res.flushHeaders();
  }
  answer.on('error', () => abortResponse(res));
  answer.on('end', () => {
    const trailers = Object.keys(answer.trailers).length > 0 ? answer.trailers : undefined;
    if (trailers && !res.writableEnded) res.addTrailers(trailers as Record<string, string>);
    res.end();
  });
  answer.pipe(res, { end: false });
}

/** A kept connection that the program closed as we wrote to it: a request without a body, which it has not answered, is sent again. */
function mayRepeat(outgoing: ClientRequest, req: HttpRequest, res: HttpResponse): boolean {
  const harmless = ['GET', 'HEAD', 'OPTIONS'].includes(req.method ?? '') && !hasBody(req);
  return outgoing.reusedSocket && harmless && !res.headersSent && !res.destroyed;
}
