import { mkdirSync, readFileSync } from 'node:fs';
import type { FastifyInstance } from 'fastify';
import { buildApi } from '../api/app.ts';
import type { Config, RuntimeName } from '../core/config.ts';
import { SandbarError } from '../core/errors.ts';
import { Log } from '../core/log.ts';
import { type Database, openDatabase } from '../db/database.ts';
import { SandboxStore } from '../db/sandbox-store.ts';
import { TeamStore } from '../db/team-store.ts';
import { TemplateStore } from '../db/template-store.ts';
import { createEnvdHandler } from '../envd/server.ts';
import { createGateway } from '../gateway/gateway.ts';
import { Listener } from '../gateway/listener.ts';
import { localNodeClient } from '../node/client.ts';
import { Node } from '../node/node.ts';
import { SandboxProxy } from '../proxy/proxy.ts';
import { SandboxService } from '../sandboxes/sandboxes.ts';
import { type Artifacts, locateArtifacts } from '../setup/artifacts.ts';
import { ensureFirstTeam } from '../teams/first-start.ts';
import { Teams } from '../teams/teams.ts';
import { baseLayerName, registerBase } from '../templates/builtin.ts';
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

  const database = await openDatabase(config, log);
  const stores = {
    sandboxes: new SandboxStore(database),
    templates: new TemplateStore(database),
    teams: new TeamStore(database),
  };
  const firstStart = await ensureFirstTeam(stores.teams, config);
  const teams = new Teams(stores.teams, log);

  const node = await startNode(config, artifacts, log);
  await registerBase(stores.templates, baseLayerName(artifacts.baseTemplate.key), config.diskSizeMb);
  const sandboxes = new SandboxService({ config: { ...config, runtime }, ...stores, node: localNodeClient(node), log });
  await sandboxes.start();

  const api = buildApi({ sandboxes, templates: stores.templates, teams, config, log });
  await api.ready();
  const proxy = new SandboxProxy({ dataPlane: node, log });
  const gateway = createGateway({
    domain: config.domain,
    controlPlane: (req, res) => api.routing(req as never, res as never),
    directory: sandboxes,
    envd: createEnvdHandler({ directory: sandboxes, dataPlane: node, log }),
    proxy,
    log,
  });
  const listener = new Listener({
    host: config.host,
    port: config.port,
    handler: gateway.handle,
    upgrade: gateway.upgrade,
    ...(config.tls !== undefined && {
      tls: { cert: readFileSync(config.tls.certFile), key: readFileSync(config.tls.keyFile) },
    }),
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
  return { port, stop: () => stopAll(listener, api, sandboxes, node, teams, database, lock) };
}

async function startNode(config: Config, artifacts: Artifacts, log: Log): Promise<Node> {
  const node = new Node(
    {
      stateDir: config.stateDir,
      networkRange: config.networkRange,
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
  listener: Listener,
  api: FastifyInstance,
  sandboxes: SandboxService,
  node: Node,
  teams: Teams,
  database: Database,
  lock: { release(): void },
): Promise<void> {
  await listener.stop(STOP_GRACE_MS);
  await api.close();
  await sandboxes.stop();
  await node.stop();
  await teams.stop();
  await database.destroy();
  lock.release();
}
