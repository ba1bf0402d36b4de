import { isIP } from 'node:net';

/** Where a request goes. */
export type Route =
  | { kind: 'api' }
  | { kind: 'sandbox'; id: string; port: number }
  | { kind: 'error'; status: 400; message: string };

/** The headers that name a sandbox where the host cannot. */
export interface RoutingHeaders {
  sandboxId: string | undefined;
  sandboxPort: string | undefined;
}

/** An id as it appears in hosts: ours, or any other of [a-z0-9] that cannot be mistaken for a part of an address. */
const foreignHost = /^(\d{1,5})-([a-z0-9]{12,})$/;

/**
 * Chooses between the control plane and a sandbox (contract §3.5). `{port}-{id}.{domain}` is the sandbox's own host. Under any other
 * host the routing headers decide, so that the service can be reached by whatever name its machine has; without them it is
 * the control plane that is meant.
 */
export function routeRequest(host: string, headers: RoutingHeaders, domain: string): Route {
  const name = withoutPort(host.toLowerCase());
  const [label = '', ...rest] = name.split('.');
  const ownDomain = rest.join('.') === withoutPort(domain);
  if (!isAddress(name) && label.includes('-')) {
    if (ownDomain) return fromLabel(label);
    if (rest.length > 0 && foreignHost.test(withoutClient(label))) return fromLabel(label);
  }
  if (headers.sandboxId === undefined && headers.sandboxPort === undefined) return { kind: 'api' };
  if (headers.sandboxId === undefined || headers.sandboxPort === undefined) return error('missing header');
  return target(headers.sandboxPort, headers.sandboxId);
}

/** The parts of a host label: port, id; a third is the client id of old and means nothing. */
function fromLabel(label: string): Route {
  const [port = '', id = ''] = label.split('-');
  return target(port, id);
}

function target(portText: string, idText: string): Route {
  const port = /^\d{1,5}$/.test(portText) ? Number(portText) : 0;
  if (port < 1 || port > 65535) return error('Invalid sandbox port');
  const id = idText.split('-', 1)[0] ?? '';
  if (!/^[a-z0-9]+$/.test(id)) return error('Invalid sandbox ID');
  return { kind: 'sandbox', id, port };
}

function error(message: string): Route {
  return { kind: 'error', status: 400, message };
}

function withoutPort(host: string): string {
  if (host.startsWith('[')) return host.slice(1, host.indexOf(']'));
  const colon = host.indexOf(':');
  return colon < 0 ? host : host.slice(0, colon);
}

function withoutClient(label: string): string {
  return label.split('-').slice(0, 2).join('-');
}

function isAddress(name: string): boolean {
  return name === 'localhost' || isIP(name) !== 0;
}
