import type { Socket } from 'node:net';
import { Log } from '../core/log.ts';
import { createEnvdHandler } from '../envd/server.ts';
import { ConnectionServer } from '../gateway/connection-server.ts';
import { createGateway } from '../gateway/gateway.ts';
import { SandboxProxy } from '../proxy/proxy.ts';
import { Channel } from './channel.ts';
import type { ConnectionMessage, MainSurface, WorkerSettings, WorkerSurface } from './contract.ts';
import { remoteControlPlane } from './control-plane.ts';
import { RemoteSandboxes } from './remote-sandboxes.ts';

// A process of its own that serves connections handed to it by the main one. It lives as long as that does.

let server: ConnectionServer | undefined;

const surface: WorkerSurface = {
  start: (settings) => {
    server = serve(settings);
    main.tell('ready');
  },
  know: (sandboxId, access) => sandboxes.know(sandboxId, access),
  hold: (sandboxId) => sandboxes.hold(sandboxId),
  reopen: (sandboxId) => sandboxes.reopen(sandboxId),
  cut: (sandboxId, reason) => sandboxes.cut(sandboxId, reason),
  end: (sandboxId, reason) => sandboxes.end(sandboxId, reason),
  stop: async (graceMs) => server?.stop(graceMs),
};

const main = new Channel<MainSurface>((message) => process.send?.(message), surface);
const sandboxes = new RemoteSandboxes(main);

process.on('message', (message: object, socket) => {
  if (!('connection' in message)) {
    main.receive(message);
    return;
  }
  main.tell('took', (message as ConnectionMessage).connection);
  // One that was closed on the way is not there any more.
  if (socket) server?.take(socket as Socket);
});
process.once('disconnect', () => process.exit(0));
// Meant for the whole service: the main process says when it is time.
process.on('SIGTERM', () => undefined);
process.on('SIGINT', () => undefined);

function serve({ domain, tls, logLevel, controlPlane }: WorkerSettings): ConnectionServer {
  const log = new Log(logLevel, { worker: process.pid });
  const gateway = createGateway({
    domain,
    controlPlane: remoteControlPlane(controlPlane, log),
    directory: sandboxes,
    envd: createEnvdHandler({
      directory: sandboxes,
      dataPlane: sandboxes,
      usage: (row) => sandboxes.usage(row),
      turns: sandboxes,
      log,
    }),
    proxy: new SandboxProxy({ dataPlane: sandboxes, admission: sandboxes, log }),
    log,
  });
  return new ConnectionServer({ handler: gateway.handle, upgrade: gateway.upgrade, ...(tls && { tls }) });
}
