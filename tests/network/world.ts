import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Sandbox, type SandboxOpts } from 'e2b';
import { afterAll, beforeAll, describe } from 'vitest';
import type { RuntimeName } from '../../src/core/config.ts';
import { TestInternet } from '../support/internet.ts';
import { RUNTIMES } from '../support/node.ts';
import { startTestService, type TestService } from '../support/service.ts';

const PROBE = readFileSync(path.join(import.meta.dirname, 'probe.py'), 'utf8');

/** Something to try from inside, by a function of probe.py and its arguments. */
export type Attempt = [kind: string, ...unknown[]];

/** An echo of what arrived at a server of the test internet. */
export interface Echo {
  at: string;
  port: number;
  from: string;
  url: string;
  headers: Record<string, string>;
}

/** A service and an internet for it. */
export class World {
  readonly internet: TestInternet;
  readonly service: TestService;

  constructor(internet: TestInternet, service: TestService) {
    this.internet = internet;
    this.service = service;
  }

  static async make(runtime: RuntimeName, env: Record<string, string> = {}): Promise<World> {
    const internet = await TestInternet.start();
    await internet.setNames(ZONE);
    try {
      const service = await startTestService({
        runtime,
        env: { SANDBAR_NAME_SERVERS: TestInternet.dns, NODE_EXTRA_CA_CERTS: internet.authorityFile, ...env },
      });
      return new World(internet, service);
    } catch (error) {
      await internet.stop();
      throw error;
    }
  }

  async create(options: SandboxOpts = {}): Promise<Probed> {
    const sandbox = await Sandbox.create('base', { timeoutMs: 300_000, ...options, ...this.service.connection });
    await sandbox.files.write('/home/user/probe.py', PROBE);
    return new Probed(sandbox);
  }

  async dispose(): Promise<void> {
    await this.service.dispose().finally(() => this.internet.stop());
  }
}

/** Names that lead somewhere at the beginning of every suite. */
export const ZONE = {
  'allowed.test': [TestInternet.allowed],
  '*.allowed.test': [TestInternet.allowed],
  'other.test': [TestInternet.other],
  'ruled.test': [TestInternet.allowed],
  '*.ruled.test': [TestInternet.allowed],
  'metadata.test': ['169.254.169.254'],
  'private.test': ['10.99.99.99'],
  'loopback.test': ['127.0.0.1'],
  'machine.test': [TestInternet.machine],
};

/** A sandbox with the probe in it. */
export class Probed {
  readonly sandbox: Sandbox;

  constructor(sandbox: Sandbox) {
    this.sandbox = sandbox;
  }

  get id(): string {
    return this.sandbox.sandboxId;
  }

  /** What becomes of attempts, one after the other; raw sockets need root. */
  async try(attempts: Attempt[], user: 'user' | 'root' = 'user'): Promise<unknown[]> {
    const quoted = `'${JSON.stringify(attempts).replaceAll("'", "'\\''")}'`;
    const { stdout } = await this.sandbox.commands.run(`python3 /home/user/probe.py ${quoted}`, {
      user,
      timeoutMs: 120_000,
    });
    return JSON.parse(stdout) as unknown[];
  }

  async tryOne<T = unknown>(...attempt: Attempt): Promise<T> {
    return (await this.try([attempt]))[0] as T;
  }

  async run(command: string): Promise<{ exitCode: number; stdout: string; stderr: string }> {
    try {
      return await this.sandbox.commands.run(command, { timeoutMs: 120_000 });
    } catch (error) {
      if (error instanceof Error && 'exitCode' in error) return error as never;
      throw error;
    }
  }
}

/** Runs a suite in a world of each runtime. `world()` is for the bodies of tests and hooks. */
export function describeInWorlds(
  name: string,
  suite: (world: () => World, runtime: RuntimeName) => void,
  env: Record<string, string> = {},
): void {
  describe.each(RUNTIMES)(`${name} on %s`, (runtime) => {
    let world: World | undefined;
    beforeAll(async () => {
      world = await World.make(runtime, env);
    });
    afterAll(async () => {
      await world?.dispose();
    });
    suite(() => world as World, runtime);
  });
}

/** What a refused connection looks like from inside. */
export const refused =
  /^failed: (Connection refused|Connection reset by peer|closed|.*without an answer|.*during the handshake|Broken pipe)/;
/** What a refused packet of another protocol looks like. */
export const unreachable =
  /^(timeout|failed: (No route to host|Network is unreachable|Connection refused|Permission denied|Operation not permitted|Host is unreachable|Destination))/;
