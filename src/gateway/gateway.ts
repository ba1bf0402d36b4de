import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { messageOf } from '../core/errors.ts';
import {
  type HttpHandler,
  type HttpRequest,
  type HttpResponse,
  headerOf,
  hostOf,
  sendBytes,
  sendJson,
} from '../core/http.ts';
import type { Log } from '../core/log.ts';
import { refuseUpgrade, sendAnswer } from '../core/sandbox-answers.ts';
import { applyCors } from '../envd/cors.ts';
import { internalPathAnswer } from '../envd/internal-paths.ts';
import { ENVD_PORT, type EnvdHandler } from '../envd/server.ts';
import type { SandboxProxy } from '../proxy/proxy.ts';
import type { SandboxDirectory } from '../sandboxes/contract.ts';
import { type Route, routeRequest } from './route.ts';
import { findSandbox } from './wake.ts';

export interface GatewayOptions {
  /** Domain of sandbox URLs; may carry a port. */
  domain: string;
  controlPlane: HttpHandler;
  directory: SandboxDirectory;
  envd: EnvdHandler;
  proxy: SandboxProxy;
  log: Log;
}

export interface Gateway {
  handle: HttpHandler;
  upgrade: (req: IncomingMessage, socket: Duplex, head: Buffer) => void;
}

type SandboxRoute = Route & { kind: 'sandbox' };

/** Sends every request of the one port to the part that serves it. */
export function createGateway(options: GatewayOptions): Gateway {
  const { directory, log } = options;

  const serve = async (route: SandboxRoute, req: HttpRequest, res: HttpResponse): Promise<void> => {
    const reserved = route.port === ENVD_PORT ? internalPathAnswer(pathOf(req)) : undefined;
    if (reserved) return sendJson(res, reserved.code, reserved);
    // A preflight asks nothing of the sandbox and must not wake it.
    if (route.port === ENVD_PORT && req.method === 'OPTIONS' && applyCors(req, res)) return;
    const found = await findSandbox(directory, route.id, route.port, req);
    if ('status' in found) return sendAnswer(res, found, req.headers);
    if (route.port === ENVD_PORT) options.envd(found, req, res);
    else await options.proxy.handle(found, route.port, req, res);
  };

  const raise = async (route: SandboxRoute, req: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    const found = await findSandbox(directory, route.id, route.port, req);
    if ('status' in found) refuseUpgrade(socket, found, req.headers);
    else await options.proxy.upgrade(found, route.port, req, socket, head);
  };

  return {
    handle(req, res) {
      const route = routeOf(req, options.domain);
      if (route.kind === 'api') options.controlPlane(req, res);
      else if (route.kind === 'error') sendText(res, route.status, route.message);
      else {
        serve(route, req, res).catch((error: unknown) => {
          log.error('a request could not be routed', { sandboxId: route.id, error: messageOf(error) });
          sendJson(res, 500, { message: 'internal error', code: 500 });
        });
      }
    },

    upgrade(req, socket, head) {
      socket.on('error', () => socket.destroy());
      const route = routeOf(req, options.domain);
      if (route.kind !== 'sandbox' || route.port === ENVD_PORT) {
        const message = route.kind === 'error' ? route.message : 'This endpoint does not upgrade connections';
        refuseUpgrade(socket, { status: 400, message }, req.headers);
        return;
      }
      raise(route, req, socket, head).catch((error: unknown) => {
        log.error('an upgrade could not be routed', { sandboxId: route.id, error: messageOf(error) });
        socket.destroy();
      });
    },
  };
}

function routeOf(req: HttpRequest, domain: string): Route {
  const headers = {
    sandboxId: headerOf(req.headers, 'e2b-sandbox-id'),
    sandboxPort: headerOf(req.headers, 'e2b-sandbox-port'),
  };
  return routeRequest(hostOf(req), headers, domain);
}

function pathOf(req: HttpRequest): string {
  return (req.url ?? '/').split('?', 1)[0] ?? '/';
}

function sendText(res: HttpResponse, status: number, message: string): void {
  sendBytes(res, status, Buffer.from(`${message}\n`), { 'content-type': 'text/plain; charset=utf-8' });
}
