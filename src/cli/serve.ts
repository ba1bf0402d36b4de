import { mkdirSync, readFileSync } from 'node:fs';
import type { FastifyInstance } from 'fastify';
import { buildApi } from '../api/app.ts';
import type { Config, RuntimeName } from '../core/config.ts';
import { SandbarError } from '../core/errors.ts';
import type { HttpHandler } from '../core/http.ts';
import { Log } from '../core/log.ts';
import { type Database, openDatabase, openDurability } from '../db/database.ts';
import { HistoryStore } from '../db/history-store.ts';
import { MetricStore } from '../db/metric-store.ts';
import { SandboxEventStore } from '../db/sandbox-event-store.ts';
import { SandboxLogStore } from '../db/sandbox-log-store.ts';
import { SandboxStore } from '../db/sandbox-store.ts';
import { SecretStore } from '../db/secret-store.ts';
import { SnapshotStore } from '../db/snapshot-store.ts';
import { TeamStore } from '../db/team-store.ts';
import { TemplateStore } from '../db/template-store.ts';
import { createEnvdHandler } from '../envd/server.ts';
import { Turns } from '../envd/turns.ts';
import type { UsageSample } from '../events/contract.ts';
import { History } from '../events/history.ts';
import { Metrics } from '../events/metrics.ts';
import { Sampler } from '../events/sampler.ts';
import { createGateway } from '../gateway/gateway.ts';
import { Listener } from '../gateway/listener.ts';
import { localNodeClient } from '../node/client.ts';
import { Node } from '../node/node.ts';
import { ConnectionCounts } from '../proxy/admission.ts';
import { SandboxProxy } from '../proxy/proxy.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';
import { SandboxService } from '../sandboxes/sandboxes.ts';
import { Snapshots } from '../sandboxes/snapshots.ts';
import { loadSeal } from '../secrets/sealing.ts';
import { Secrets } from '../secrets/secrets.ts';
import { type Artifacts, locateArtifacts } from '../setup/artifacts.ts';
import { ensureFirstTeam } from '../teams/first-start.ts';
import { Teams } from '../teams/teams.ts';
import { baseLayerName, registerBase } from '../templates/builtin.ts';
import { TemplateRemoval } from '../templates/removal.ts';
import { Workers } from '../workers/workers.ts';
import { startBuilds } from './start-builds.ts';
import { holdLock } from './state-lock.ts';
import { welcomeText } from './welcome.ts';

/** A service that runs. */
export interface Service {
  port: number;
  /** Stops serving; sandboxes run on. */
  stop(): Promise<void>;
}

const STOP_GRACE_MS = 5_000;

/** The composition root: makes every part of the service and joins them. */
export async function startService(config: Config): Promise<Service> {
  const artifacts = locateArtifacts(config);
  const log = new Log(config.logLevel);
  mkdirSync(config.stateDir, { recursive: true });
  const lock = await holdLock(config.stateDir);
  const runtime = usableRuntime(config.runtime, artifacts, log);

  const database = await openDatabase(config, log, { syncEachCommit: false });
  const durability = openDurability(config, log);
  const stores = {
    sandboxes: new SandboxStore(database),
    templates: new TemplateStore(database),
    teams: new TeamStore(database),
    snapshots: new SnapshotStore(database),
    history: new HistoryStore(database),
    events: new SandboxEventStore(database),
    logs: new SandboxLogStore(database),
  };
  const firstStart = await ensureFirstTeam(stores.teams, config);
  const teams = new Teams(stores.teams, log);

  const node = await startNode(config, artifacts, log);
  await registerBase(stores.templates, baseLayerName(artifacts.baseTemplate.key), config.diskSizeMb);
  const nodeClient = localNodeClient(node);
  const metrics = new Metrics(new MetricStore(database));
  const sampler = new Sampler({ sandboxes: stores.sandboxes, usage: (id) => node.usage(id), metrics, log });
  const history = new History({
    store: stores.history,
    events: stores.events,
    logs: stores.logs,
    teamOf: async (id) => (await stores.sandboxes.get(id))?.teamId,
    onEvent: ({ type, teamId }) => {
      if (type === 'sandbox.lifecycle.created') sampler.started(teamId);
    },
    log,
  });
  const secrets = new Secrets(new SecretStore(database), loadSeal(config.stateDir, config.secretsKey), log);
  const sandboxes = new SandboxService({
    config: { ...config, runtime },
    ...stores,
    node: nodeClient,
    observer: history,
    secrets,
    log,
  });
  await sandboxes.start();
  secrets.onChange((teamId, name) => sandboxes.secretChanged(teamId, name));
  const snapshots = new Snapshots({
    store: stores.snapshots,
    templates: stores.templates,
    sandboxes,
    node: nodeClient,
    observer: history,
    log,
  });
  await snapshots.start();
  history.start();
  sampler.start();
  const building = await startBuilds(config, runtime, database, stores.templates, node, nodeClient, log);
  const removal = new TemplateRemoval({ ...stores, builds: building.builds, node: nodeClient, log });

  const api = buildApi({
    sandboxes,
    templates: stores.templates,
    teams,
    snapshots,
    removal,
    ...building,
    history,
    metrics,
    secrets,
    durability,
    config,
    log,
  });
  await api.ready();
  const controlPlane: HttpHandler = (req, res) => api.routing(req as never, res as never);
  const usage = async (row: SandboxRow) => envdUsage((await sampler.measure(row)).sample);
  const admission = new ConnectionCounts();
  const turns = new Turns();
  const gateway = createGateway({
    domain: config.domain,
    controlPlane,
    directory: sandboxes,
    envd: createEnvdHandler({ directory: sandboxes, dataPlane: node, usage, turns, log }),
    proxy: new SandboxProxy({ dataPlane: node, admission, log }),
    log,
  });
  const tls = config.tls && {
    cert: readFileSync(config.tls.certFile, 'utf8'),
    key: readFileSync(config.tls.keyFile, 'utf8'),
  };
  const workers = new Workers({
    count: config.workers,
    settings: { domain: config.domain, tls, logLevel: config.logLevel },
    controlPlane,
    parts: { directory: sandboxes, sandboxes: node, usage, admission, turns },
    log,
  });
  await workers.start();
  const listener = new Listener({
    host: config.host,
    port: config.port,
    handler: gateway.handle,
    upgrade: gateway.upgrade,
    ...(tls && { tls }),
    ...(config.workers > 0 && { handOver: workers.handOver }),
  });
  const port = await listener.start();
  process.stdout.write(
    welcomeText({
      config,
      port,
      tls: config.tls !== undefined,
      runtime,
      runscOrigin: artifacts.runsc?.origin,
      apiKey: firstStart.apiKey,
    }),
  );
  const observers = [building, sampler, history, durability];
  return { port, stop: () => stopAll([listener, workers], api, sandboxes, observers, node, teams, database, lock) };
}

function envdUsage(sample: UsageSample) {
  return {
    cpuUsedPct: sample.cpuUsedPct,
    memoryTotalBytes: sample.memTotal,
    memoryUsedBytes: sample.memUsed,
    memoryCacheBytes: sample.memCache,
  };
}

async function startNode(config: Config, artifacts: Artifacts, log: Log): Promise<Node> {
  const node = new Node(
    {
      stateDir: config.stateDir,
      networkRange: config.networkRange,
      nameServers: config.nameServers,
      sandboxConnections: config.sandboxConnections,
      sandboxBytesPerSecond: config.sandboxBytesPerSecond,
      warmPool: config.warmPool,
      pauseHoldMs: config.pauseHoldSeconds * 1000,
      programs: {
        agent: artifacts.agent,
        hostHelper: artifacts.hostHelper,
        runsc: artifacts.runsc?.path,
        crun: artifacts.crun,
      },
    },
    log,
  );
  await node.layers.import(baseLayerName(artifacts.baseTemplate.key), artifacts.baseTemplate.rootfs);
  await node.start();
  return node;
}

/** The runtime that is asked for, or the container where there is no runsc to be had, which is then said. */
function usableRuntime(wanted: RuntimeName, artifacts: Artifacts, log: Log): RuntimeName {
  if (wanted === 'gvisor' && artifacts.runsc !== undefined) return 'gvisor';
  if (artifacts.crun === undefined)
    throw new SandbarError('failed_precondition', 'neither runsc nor crun is on this machine: run `sandbar doctor`');
  if (wanted === 'gvisor') log.warn('no runsc on this machine: sandboxes are containers and share its kernel');
  return 'container';
}

async function stopAll(
  doors: { stop(graceMs: number): Promise<void> }[],
  api: FastifyInstance,
  sandboxes: SandboxService,
  observers: { stop(): Promise<void> }[],
  node: Node,
  teams: Teams,
  database: Database,
  lock: { release(): void },
): Promise<void> {
  await Promise.all(doors.map((door) => door.stop(STOP_GRACE_MS)));
  await api.close();
  await sandboxes.stop();
  for (const observer of observers) await observer.stop();
  await node.stop();
  await teams.stop();
  await database.destroy();
  lock.release();
}
