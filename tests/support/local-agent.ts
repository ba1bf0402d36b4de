import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { AgentClient } from '../../src/agent/client.ts';
import { loadConfig } from '../../src/core/config.ts';
import { locateArtifacts } from '../../src/setup/artifacts.ts';
import { freePort } from './free-port.ts';

const { agent: binary } = locateArtifacts(loadConfig(process.env));

/** The real agent as a plain process of this machine, whose files and users are then the sandbox's. */
export class LocalAgent {
  readonly port: number;
  readonly secret: Buffer;
  readonly client: AgentClient;
  readonly #process: ChildProcess;

  static async start(): Promise<LocalAgent> {
    const port = await freePort();
    const secret = randomBytes(32);
    const child = spawn(binary, {
      env: { SANDBAR_SECRET: secret.toString('hex'), SANDBAR_PORT: String(port) },
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    const agent = new LocalAgent(port, secret, child);
    await agent.#answering();
    return agent;
  }

  private constructor(port: number, secret: Buffer, child: ChildProcess) {
    this.port = port;
    this.secret = secret;
    this.#process = child;
    this.client = new AgentClient({ host: '127.0.0.1', port, secret });
  }

  async stop(): Promise<void> {
    this.client.close('the agent was stopped');
    const ended = once(this.#process, 'exit');
    this.#process.kill('SIGTERM');
    await ended;
  }

  async #answering(): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.client.ping();
      } catch (error) {
        if (attempt > 100 || this.#process.exitCode !== null) throw error;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }
}
