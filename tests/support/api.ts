import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { FastifyInstance, InjectOptions } from 'fastify';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { buildApi } from '../../src/api/app.ts';
import { Log } from '../../src/core/log.ts';
import { BuildCacheStore } from '../../src/db/build-cache-store.ts';
import { BuildStore } from '../../src/db/build-store.ts';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { settledAlready } from '../../src/db/durability.ts';
import { HistoryStore } from '../../src/db/history-store.ts';
import { MetricStore } from '../../src/db/metric-store.ts';
import { SandboxEventStore } from '../../src/db/sandbox-event-store.ts';
import { SandboxLogStore } from '../../src/db/sandbox-log-store.ts';
import { SecretStore } from '../../src/db/secret-store.ts';
import { SnapshotStore } from '../../src/db/snapshot-store.ts';
import { TeamStore } from '../../src/db/team-store.ts';
import { type BuildContent, TemplateStore } from '../../src/db/template-store.ts';
import { History } from '../../src/events/history.ts';
import { Metrics } from '../../src/events/metrics.ts';
import type { NodeClient } from '../../src/node/client.ts';
import type {
  CreateSandbox,
  ForkResult,
  ListPage,
  ListQuery,
  NetworkChange,
  ResumeOptions,
  Sandboxes,
  SandboxRow,
  TeamRef,
} from '../../src/sandboxes/contract.ts';
import { Snapshots } from '../../src/sandboxes/snapshots.ts';
import { Seal } from '../../src/secrets/sealing.ts';
import { Secrets } from '../../src/secrets/secrets.ts';
import { ensureFirstTeam } from '../../src/teams/first-start.ts';
import { Teams } from '../../src/teams/teams.ts';
import { TemplateBuilds } from '../../src/templates/builds.ts';
import { TemplateRemoval } from '../../src/templates/removal.ts';
import { rowOf } from './rows.ts';

export { rowOf } from './rows.ts';

import { Uploads } from '../../src/templates/uploads.ts';

// The control plane on a real store with sandboxes that only pretend: for the shapes of the wire. A test file that imports this
// has one of its own; the variables are set anew before its tests.

export const KEY = `e2b_${'ab'.repeat(20)}`;
const content: BuildContent = {
  cpuCount: 2,
  memoryMb: 1024,
  diskSizeMb: 10240,
  envdVersion: '0.6.13',
  layers: ['l'],
  startCmd: null,
  readyCmd: null,
  defaultUser: 'user',
  defaultWorkdir: null,
  env: {},
  snapshotId: null,
};

/** Answers as it is told and remembers what it was asked. For the shapes of the wire only. */
export class FakeSandboxes implements Sandboxes {
  calls: unknown[][] = [];
  row: SandboxRow = rowOf({});
  page: ListPage = { rows: [], next: null, totalRunning: 0 };
  error: Error | undefined;

  async create({ id: teamId }: TeamRef, spec: CreateSandbox): Promise<SandboxRow> {
    return this.#answer('create', teamId, spec);
  }
  async get(teamId: string, id: string): Promise<SandboxRow> {
    return this.#answer('get', teamId, id);
  }
  async list(teamId: string, query: ListQuery): Promise<ListPage> {
    this.#answer('list', teamId, { ...query });
    return this.page;
  }
  async kill(teamId: string, id: string): Promise<void> {
    this.#answer('kill', teamId, id);
  }
  async setTimeout(teamId: string, id: string, seconds: number): Promise<void> {
    this.#answer('setTimeout', teamId, id, seconds);
  }
  async refresh(teamId: string, id: string, seconds: number): Promise<void> {
    this.#answer('refresh', teamId, id, seconds);
  }
  async pause(teamId: string, id: string, options: { memory: boolean }): Promise<void> {
    this.#answer('pause', teamId, id, options);
  }
  async resume(teamId: string, id: string, options: ResumeOptions): Promise<SandboxRow> {
    return this.#answer('resume', teamId, id, options);
  }
  async setNetwork(teamId: string, id: string, change: NetworkChange): Promise<void> {
    this.#answer('setNetwork', teamId, id, change);
  }
  async writeSnapshot(
    teamId: string,
    id: string,
    snapshotId: string,
    options: { filesOnly: boolean },
  ): Promise<SandboxRow> {
    return this.#answer('writeSnapshot', teamId, id, snapshotId, options);
  }
  async fork(teamId: string, id: string, options: { timeoutSeconds: number; count: number }): Promise<ForkResult[]> {
    return [{ row: this.#answer('fork', teamId, id, options) }];
  }
  async connect(teamId: string, id: string, options: { timeoutSeconds: number; memory: boolean }) {
    const row = this.#answer('connect', teamId, id, options);
    return { row, resumed: row.state === 'paused' };
  }
  #answer(...call: unknown[]): SandboxRow {
    this.calls.push(call);
    if (this.error !== undefined) throw this.error;
    return this.row;
  }
}

export let database: Database;
let directory: string;
export let teams: Teams;
export let teamId: string;
export let token: string;
export let templates: TemplateStore;
export let baseId: string;
export let sandboxes: FakeSandboxes;
let history: History;
let app: FastifyInstance;

beforeAll(async () => {
  directory = mkdtempSync(path.join(tmpdir(), 'sandbar-api-'));
  database = await openDatabase({ stateDir: directory, databaseUrl: undefined });
  const store = new TeamStore(database);
  const first = await ensureFirstTeam(store, { stateDir: directory, apiKey: KEY });
  teamId = first.team.id;
  token = first.accessToken ?? '';
  teams = new Teams(store);
  templates = new TemplateStore(database);
  baseId = (await templates.upsertBuiltin('base', content, Date.UTC(2026, 0, 1))).template.id;
});
beforeEach(() => {
  sandboxes = new FakeSandboxes();
  serveWith(new Log('error'));
});
afterAll(async () => {
  await history.written();
  await teams.stop();
  await database.destroy();
  rmSync(directory, { recursive: true });
});

export function serveWith(log: Log): void {
  const store = new SnapshotStore(database);
  const node = { removeSnapshot: async () => ({}) } as unknown as NodeClient;
  const logs = new SandboxLogStore(database);
  const events = new SandboxEventStore(database);
  history = new History({
    store: new HistoryStore(database),
    events,
    logs,
    teamOf: async () => teamId,
    log,
  });
  const buildStore = new BuildStore(database);
  const uploads = new Uploads(path.join(directory, 'uploads'), 1024 * 1024);
  const builds = new TemplateBuilds({
    config: { diskSizeMb: 10240, buildStepSeconds: 60, maxBuilds: 20 },
    runtime: 'container',
    builds: buildStore,
    cache: new BuildCacheStore(database),
    templates,
    uploads,
    node,
    machine: {} as never,
    images: { fromImage: () => Promise.reject(new Error('no images here')) },
    log,
  });
  app = buildApi({
    sandboxes,
    templates,
    builds,
    buildStore,
    uploads,
    teams,
    snapshots: new Snapshots({ store, templates, sandboxes, node, observer: history, log }),
    removal: new TemplateRemoval({ templates, snapshots: store, builds, node, log }),
    history,
    metrics: new Metrics(new MetricStore(database)),
    secrets: new Secrets(new SecretStore(database), new Seal(Buffer.alloc(32, 1)), log),
    durability: settledAlready,
    config: { maxTimeoutSeconds: 86_400 },
    log,
  });
}

export async function call(
  method: string,
  url: string,
  body?: unknown,
  headers: Record<string, string> = { 'x-api-key': KEY },
) {
  const response = await app.inject({
    method: method as NonNullable<InjectOptions['method']>,
    url,
    headers,
    ...(body !== undefined && { payload: body as object }),
  });
  const text = response.body;
  return { status: response.statusCode, headers: response.headers, body: text === '' ? undefined : json(text), text };
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export const failure = (code: number, message: unknown) => ({ status: code, body: { code, message } });
