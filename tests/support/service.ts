import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe } from 'vitest';
import type { RuntimeName } from '../../src/core/config.ts';
import { countLeftovers } from './leftovers.ts';
import { RUNTIMES } from './node.ts';

const root = path.resolve(import.meta.dirname, '../..');
/** The service runs as `npm start` runs it. */
const nodeFlags = readFileSync(path.join(root, 'scripts/node-flags'), 'utf8').trim().split(' ');
const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 20_000;

// A worker of vitest's lives on for a while when vitest itself is killed: end with it, so that the guards clear up.
process.once('disconnect', () => process.exit(1));

export const TEST_API_KEY = `e2b_${'5a'.repeat(20)}`;
export const TEST_DOMAIN = 'sandbar.test';

export interface TestServiceOptions {
  runtime?: RuntimeName;
  databaseUrl?: string;
  /** A directory of the test's own, such as one on a small disk; it is removed with the service. */
  stateDir?: string;
  /** More settings, `SANDBAR_…`; they win over those made here. */
  env?: Record<string, string>;
}

/** Starts a real service, as `npm start` does, on a state directory of its own and a free port. */
export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  const service = new TestService(options);
  try {
    await service.start();
  } catch (error) {
    await service.dispose().catch(() => undefined);
    throw error;
  }
  return service;
}

/** Runs a suite against a service of each runtime. `service()` is for the bodies of tests and hooks. */
export function describeOnRuntimes(
  name: string,
  suite: (service: () => TestService, runtime: RuntimeName) => void,
  options: Omit<TestServiceOptions, 'runtime'> = {},
): void {
  describe.each(RUNTIMES)(`${name} on %s`, (runtime) => {
    let service: TestService | undefined;
    beforeAll(async () => {
      service = await startTestService({ ...options, runtime });
    });
    afterAll(async () => {
      await service?.dispose();
    });
    suite(() => service as TestService, runtime);
  });
}

/** A service that runs as a process of its own; whatever becomes of the test, nothing of it stays. */
export class TestService {
  readonly stateDir: string;
  readonly apiKey = TEST_API_KEY;
  readonly domain = TEST_DOMAIN;
  readonly runtime: RuntimeName;
  readonly #env: NodeJS.ProcessEnv;
  readonly #guard: ChildProcess;
  #process: ChildProcess | undefined;
  #port = 0;
  #isSecure = false;

  constructor(options: TestServiceOptions) {
    this.runtime = options.runtime ?? 'gvisor';
    this.stateDir = options.stateDir ?? mkdtempSync(path.join(tmpdir(), 'sandbar-test-'));
    chmodSync(this.stateDir, 0o711);
    this.#env = {
      ...inheritedEnv(),
      SANDBAR_RUNTIME: this.runtime,
      SANDBAR_STATE_DIR: this.stateDir,
      SANDBAR_DOMAIN: this.domain,
      SANDBAR_API_KEY: this.apiKey,
      // What a suite counts are the sandboxes it made itself; the pool has a suite of its own.
      SANDBAR_WARM_POOL: '0',
      // Any suite can be run against a service of several processes.
      ...(process.env['SANDBAR_TEST_WORKERS'] && { SANDBAR_WORKERS: process.env['SANDBAR_TEST_WORKERS'] }),
      ...(options.databaseUrl !== undefined && { SANDBAR_DATABASE_URL: options.databaseUrl }),
      ...options.env,
    };
    this.#guard = spawn(process.execPath, [path.join(import.meta.dirname, 'guard.ts'), this.stateDir], {
      env: inheritedEnv(),
      detached: true,
      stdio: ['pipe', 'ignore', 'inherit'],
    });
    this.#guard.stdin?.on('error', () => undefined);
  }

  /** Where control plane and sandboxes are reached; the same after a restart. */
  get url(): string {
    // A certificate is for names.
    return this.#isSecure ? `https://localhost:${this.#port}` : `http://127.0.0.1:${this.#port}`;
  }

  get port(): number {
    return this.#port;
  }

  get pid(): number {
    const pid = this.#process?.pid;
    if (pid === undefined) throw new Error('the service does not run');
    return pid;
  }

  /** Environment of a program that uses an official SDK. */
  get env(): Record<string, string> {
    return {
      E2B_API_URL: this.url,
      E2B_SANDBOX_URL: this.url,
      E2B_API_KEY: this.apiKey,
      E2B_DOMAIN: this.domain,
    };
  }

  /** The same as options of a call of the JavaScript SDK. */
  get connection(): { apiUrl: string; sandboxUrl: string; apiKey: string; domain: string } {
    return { apiUrl: this.url, sandboxUrl: this.url, apiKey: this.apiKey, domain: this.domain };
  }

  /** What the service has printed and logged since it was made. */
  get output(): string {
    return readFileSync(this.#logFile, 'utf8');
  }

  async start(): Promise<void> {
    const log = openSync(this.#logFile, 'a');
    const said = readFileSync(this.#logFile).length;
    const child = spawn(process.execPath, [...nodeFlags, 'src/main.ts', 'serve'], {
      cwd: root,
      env: { ...this.#env, SANDBAR_PORT: String(this.#port) },
      stdio: ['ignore', log, log],
    });
    closeSync(log);
    this.#process = child;
    this.#guard.stdin?.write(`service ${child.pid}\n`);
    const deadline = Date.now() + START_TIMEOUT_MS;
    for (;;) {
      const text = readFileSync(this.#logFile).subarray(said).toString();
      const [, scheme, port] = /Sandbar is serving on (https?):\/\/\S+:(\d+)\n/.exec(text) ?? [];
      if (port !== undefined) {
        this.#isSecure = scheme === 'https';
        this.#port = Number(port);
        return;
      }
      if (child.exitCode !== null || child.signalCode !== null) throw new Error(`the service did not start:\n${text}`);
      if (Date.now() > deadline) throw new Error(`the service does not get ready:\n${text}`);
      await sleep(20);
    }
  }

  /** Ends the service in good order; its sandboxes run on. */
  async stop(): Promise<void> {
    await this.#end('SIGTERM');
  }

  /** Ends the service as a power cut would; its sandboxes run on. */
  async kill9(): Promise<void> {
    await this.#end('SIGKILL');
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  /** A call of the control plane with the key of the tests. */
  fetch(pathAndQuery: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (!headers.has('x-api-key')) headers.set('x-api-key', this.apiKey);
    return fetch(`${this.url}${pathAndQuery}`, { ...init, headers });
  }

  /** Statuses of calls of the control plane that come in one packet, so that they are under way together however quick each of them is. */
  async postTogether(calls: readonly { path: string; body?: object }[]): Promise<number[]> {
    const socket = net.connect(this.port, '127.0.0.1');
    try {
      const requests = calls.map(({ path: target, body = {} }, index) => {
        const text = JSON.stringify(body);
        const lines = [
          `POST ${target} HTTP/1.1`,
          'host: localhost',
          `x-api-key: ${this.apiKey}`,
          'content-type: application/json',
          `content-length: ${Buffer.byteLength(text)}`,
          `connection: ${index === calls.length - 1 ? 'close' : 'keep-alive'}`,
        ];
        return `${lines.join('\r\n')}\r\n\r\n${text}`;
      });
      socket.write(requests.join(''));
      let answers = '';
      for await (const chunk of socket.setEncoding('utf8')) answers += chunk;
      return [...answers.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
    } finally {
      socket.destroy();
    }
  }

  /** A call of a sandbox, routed by headers as the official clients do it. */
  fetchInside(sandboxId: string, pathAndQuery: string, init: RequestInit = {}, port = 49983): Promise<Response> {
    const headers = new Headers(init.headers);
    headers.set('e2b-sandbox-id', sandboxId);
    headers.set('e2b-sandbox-port', String(port));
    return fetch(`${this.url}${pathAndQuery}`, { ...init, headers });
  }

  /** Kills every sandbox through the API. */
  async killAll(): Promise<void> {
    for (;;) {
      const response = await this.fetch('/v2/sandboxes');
      if (!response.ok) throw new Error(`cannot list sandboxes: ${response.status} ${await response.text()}`);
      const sandboxes = (await response.json()) as { sandboxID: string }[];
      if (sandboxes.length === 0) return;
      await Promise.all(
        sandboxes.map(async ({ sandboxID }) => {
          const answer = await this.fetch(`/sandboxes/${sandboxID}`, { method: 'DELETE' });
          if (answer.status !== 204 && answer.status !== 404)
            throw new Error(`cannot kill ${sandboxID}: ${answer.status} ${await answer.text()}`);
        }),
      );
    }
  }

  /** Kills all sandboxes, ends the service and removes its state. Fails when the service left anything on the machine. */
  async dispose(): Promise<void> {
    try {
      if (this.#process?.exitCode !== null || this.#process.signalCode !== null) await this.start();
      await this.killAll();
      await this.stop();
      const leftovers = await countLeftovers(this.stateDir);
      if (Object.values(leftovers).some((count) => count > 0))
        throw new Error(`the service left something behind: ${JSON.stringify(leftovers)}`);
      rmSync(this.stateDir, { recursive: true, force: true });
      this.#guard.stdin?.write('done\n');
    } catch (error) {
      throw new Error(`the service cannot be cleared away; it said at last:\n${this.output.slice(-3000)}`, {
        cause: error,
      });
    } finally {
      const ended = once(this.#guard, 'exit');
      this.#guard.stdin?.end();
      if (this.#guard.exitCode === null) await ended;
    }
  }

  get #logFile(): string {
    return path.join(this.stateDir, 'service.log');
  }

  async #end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    const patience = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    const [status, endedBy] = await ended;
    clearTimeout(patience);
    if (signal === 'SIGTERM' && status !== 0)
      throw new Error(`the service did not stop well (${status ?? endedBy}):\n${this.output.slice(-4000)}`);
  }
}

/** The environment of the tests without what is set for a client or another service. */
function inheritedEnv(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(
    ([name]) => name === 'SANDBAR_CACHE_DIR' || !/^(E2B|SANDBAR|VITEST|NODE_ENV)/.test(name),
  );
  return Object.fromEntries(entries);
}
