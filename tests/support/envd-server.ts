import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Log } from '../../src/core/log.ts';
import { createEnvdHandler } from '../../src/envd/server.ts';
import { createGateway } from '../../src/gateway/gateway.ts';
import { Listener } from '../../src/gateway/listener.ts';
import { SandboxProxy } from '../../src/proxy/proxy.ts';
import type { SandboxRow } from '../../src/sandboxes/contract.ts';
import { FakeSandbox, sandboxRow } from './fake-sandbox.ts';
import { LocalAgent } from './local-agent.ts';

/** The in-sandbox interface behind the real gateway, over the real agent, for one sandbox that is this machine. */
export class EnvdServer {
  readonly agent: LocalAgent;
  readonly url: string;
  readonly port: number;
  /** An empty directory, the working directory of the sandbox. */
  readonly dir: string;
  readonly #listener: Listener;
  readonly #current: { sandbox: FakeSandbox };

  static async start(): Promise<EnvdServer> {
    const agent = await LocalAgent.start();
    const dir = mkdtempSync(path.join(tmpdir(), 'sandbar-envd-'));
    await agent.client.configure({ env: { GLOBAL: 'yes' }, defaultUser: 'root', defaultWorkdir: dir });
    const log = new Log('error');
    const current = { sandbox: new FakeSandbox(sandboxRow(), agent.client) };
    const here = {
      lookup: (id: string) => current.sandbox.lookup(id),
      wake: () => current.sandbox.wake(),
      agent: (id: string) => current.sandbox.agent(id),
      dial: (id: string, port: number) => current.sandbox.dial(id, port),
      lifetime: () => current.sandbox.lifetime(),
    };
    const gateway = createGateway({
      domain: 'sandbar.local',
      controlPlane: (_req, res) => void res.end(),
      directory: here,
      envd: createEnvdHandler({ directory: here, dataPlane: here, log, readMaxBytes: 4 * 1024 * 1024 }),
      proxy: new SandboxProxy({ dataPlane: here, log }),
      log,
    });
    const listener = new Listener({ host: '127.0.0.1', port: 0, handler: gateway.handle, upgrade: gateway.upgrade });
    return new EnvdServer(agent, dir, listener, await listener.start(), current);
  }

  private constructor(
    agent: LocalAgent,
    dir: string,
    listener: Listener,
    port: number,
    current: { sandbox: FakeSandbox },
  ) {
    this.agent = agent;
    this.dir = dir;
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.#listener = listener;
    this.#current = current;
  }

  get sandbox(): FakeSandbox {
    return this.#current.sandbox;
  }

  /** Puts another sandbox in the place of the present one, over the same agent. */
  become(change: Partial<SandboxRow>): FakeSandbox {
    this.#current.sandbox = new FakeSandbox(sandboxRow(change), this.agent.client);
    return this.#current.sandbox;
  }

  /** A request to the interface, routed by headers as the official clients do it. */
  fetch(pathAndQuery: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    headers.set('e2b-sandbox-id', this.sandbox.row.id);
    headers.set('e2b-sandbox-port', '49983');
    return fetch(`${this.url}${pathAndQuery}`, { ...init, headers });
  }

  async stop(): Promise<void> {
    await this.#listener.stop();
    await this.agent.stop();
    rmSync(this.dir, { recursive: true, force: true });
  }
}
