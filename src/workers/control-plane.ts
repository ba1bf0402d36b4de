import { createConnection } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { messageOf } from '../core/errors.ts';
import { type HttpHandler, type HttpRequest, hostOf, sendJson } from '../core/http.ts';
import type { Log } from '../core/log.ts';
import { forwardHttp1 } from '../proxy/forward-http1.ts';
import { GuestAgent } from '../proxy/guest-agent.ts';
import { endToEndHeaders } from '../proxy/headers.ts';

const PROTO = 'x-forwarded-proto';

/** Sends requests of the control plane on to the process that answers them. */
export function remoteControlPlane(socketPath: string, log: Log): HttpHandler {
  const agent = new GuestAgent(
    () =>
      new Promise((resolve, reject) => {
        const socket = createConnection(socketPath, () => {
          socket.off('error', reject);
          resolve(socket);
        });
        socket.once('error', reject);
      }),
  );
  return (req, res) => {
    forwardHttp1(agent, headersFor(req), req, res).catch((error: unknown) => {
      log.error('the control plane does not answer', { error: messageOf(error) });
      sendJson(res, 503, { code: 503, message: 'the service is not ready' });
    });
  };
}

/** As the client sent them, and that it came by TLS, which the way from here on does not show. */
function headersFor(req: HttpRequest): string[] {
  const headers = ['Host', hostOf(req), ...endToEndHeaders(req)];
  const isSecure = (req.socket as Partial<TLSSocket> | null)?.encrypted === true;
  if (isSecure && req.headers[PROTO] === undefined) headers.push(PROTO, 'https');
  return headers;
}
