import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Agent } from '../../src/agent/contract.ts';
import { SandbarError } from '../../src/core/errors.ts';
import type { DataPlane } from '../../src/node/contract.ts';
import type { SandboxDirectory, SandboxRow } from '../../src/sandboxes/contract.ts';

/** A running sandbox as the store would give it. */
export function sandboxRow(change: Partial<SandboxRow> = {}): SandboxRow {
  return {
    id: 'itestsandbox000000001',
    teamId: 'team',
    templateId: 'base',
    buildId: 'build',
    alias: 'base',
    state: 'running',
    startedAt: Date.now(),
    endAt: Date.now() + 300_000,
    createdAt: Date.now(),
    cpuCount: 2,
    memoryMb: 512,
    diskSizeMb: 1024,
    envdVersion: '0.6.13',
    runtime: 'container',
    secure: false,
    envdAccessToken: null,
    earlierTokens: [],
    trafficAccessToken: null,
    metadata: {},
    envVars: {},
    timeoutSeconds: 300,
    autoPause: false,
    autoPauseMemory: true,
    autoResume: false,
    allowInternetAccess: null,
    network: null,
    volumeMounts: [],
    memoryKept: true,
    endReason: null,
    snapshotId: null,
    ...change,
  };
}

/** One sandbox that is this machine itself: its ports are the machine's, its agent is given. Ending it aborts its lifetime. */
export class FakeSandbox implements DataPlane, SandboxDirectory {
  row: SandboxRow;
  readonly #agent: Agent | undefined;
  readonly #ending = new AbortController();
  /** Connections made to its ports. */
  dials = 0;

  constructor(row: SandboxRow, agent?: Agent) {
    this.row = row;
    this.#agent = agent;
  }

  end(): void {
    this.#ending.abort(new SandbarError('unavailable', 'the sandbox has ended'));
  }

  async lookup(sandboxId: string): Promise<SandboxRow | undefined> {
    return sandboxId === this.row.id && !this.#ending.signal.aborted ? this.row : undefined;
  }

  /** Sandboxes woken by traffic. */
  wakes = 0;

  async wake(): Promise<SandboxRow> {
    this.wakes++;
    this.row = { ...this.row, state: 'running' };
    return this.row;
  }

  agent(sandboxId: string): Agent {
    if (this.#agent === undefined || sandboxId !== this.row.id || this.#ending.signal.aborted) {
      throw new SandbarError('not_found', 'no such sandbox');
    }
    return this.#agent;
  }

  dial(_sandboxId: string, port: number): Promise<Duplex> {
    this.dials++;
    return new Promise((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port, noDelay: true });
      socket.once('connect', () => resolve(socket));
      socket.once('error', (error) => reject(new SandbarError('bad_gateway', error.message)));
    });
  }

  lifetime(): AbortSignal {
    return this.#ending.signal;
  }
}
