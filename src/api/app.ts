import cors from '@fastify/cors';
import fastify, { type FastifyInstance } from 'fastify';
import type { Config } from '../core/config.ts';
import type { Log } from '../core/log.ts';
import type { BuildStore } from '../db/build-store.ts';
import type { Durability } from '../db/durability.ts';
import type { TemplateStore } from '../db/template-store.ts';
import type { History } from '../events/history.ts';
import type { Metrics } from '../events/metrics.ts';
import type { Sandboxes } from '../sandboxes/contract.ts';
import type { Snapshots } from '../sandboxes/snapshots.ts';
import type { Secrets } from '../secrets/secrets.ts';
import type { Teams } from '../teams/teams.ts';
import type { TemplateBuilds } from '../templates/builds.ts';
import type { TemplateRemoval } from '../templates/removal.ts';
import type { Uploads } from '../templates/uploads.ts';
import { authentication } from './auth.ts';
import { answerErrors, answerFrameworkError, pathOf } from './errors.ts';
import { serveEvents } from './events.ts';
import { serveHealth } from './health.ts';
import { serveMetrics } from './metrics.ts';
import { collectOpenApi, serveOpenApi } from './openapi.ts';
import { parseRequests } from './request-parsing.ts';
import { serveLifecycle } from './sandbox-lifecycle.ts';
import { serveSandboxLogs } from './sandbox-logs.ts';
import { serveSandboxNetwork } from './sandbox-network.ts';
import { serveSandboxes } from './sandboxes.ts';
import { serveSecrets } from './secrets.ts';
import { serveSnapshots } from './snapshots.ts';
import { serveTeams } from './teams.ts';
import { serveTemplateBuilds } from './template-builds.ts';
import { serveTemplateDockerfiles } from './template-dockerfile.ts';
import { serveTemplateFiles } from './template-files.ts';
import { serveTemplateRemoval } from './template-removal.ts';
import { serveTemplateTags } from './template-tags.ts';
import { serveTemplates, type TemplateReader } from './templates.ts';
import type { TypeBoxTypeProvider } from './typebox-provider.ts';

export interface ApiDependencies {
  sandboxes: Sandboxes;
  templates: TemplateReader & Pick<TemplateStore, 'get' | 'getBuild' | 'setTag'>;
  builds: Pick<TemplateBuilds, 'request' | 'begin' | 'own'>;
  buildStore: BuildStore;
  uploads: Pick<Uploads, 'has' | 'ticket' | 'receive'>;
  teams: Pick<Teams, 'authenticateKey' | 'authenticateToken' | 'createKey' | 'listKeys' | 'renameKey' | 'revokeKey'>;
  snapshots: Pick<Snapshots, 'create' | 'list'>;
  removal: Pick<TemplateRemoval, 'remove'>;
  history: Pick<History, 'listEvents' | 'listLines' | 'hasLines'>;
  metrics: Pick<Metrics, 'range' | 'latest'>;
  secrets: Pick<Secrets, 'create' | 'update' | 'get' | 'list' | 'destroy'>;
  durability: Pick<Durability, 'settled'>;
  config: Pick<Config, 'maxTimeoutSeconds'>;
  log: Log;
}

/** Environment variables and metadata have no limit of their own in the protocol; this one guards the service's memory. */
const BODY_LIMIT_BYTES = 16 * 1024 * 1024;

/** Response headers a page in a browser may read. */
const EXPOSED_HEADERS = [
  'X-Next-Token',
  'X-Total-Running',
  'RateLimit-Limit',
  'RateLimit-Remaining',
  'RateLimit-Reset',
  'Retry-After',
];

/** The control plane. It does not listen: the gateway hands it requests (`await app.ready()`, then `app.routing`). */
export function buildApi(parts: ApiDependencies): FastifyInstance {
  const { sandboxes, templates, teams, config, log } = parts;
  const app = fastify({
    logger: false,
    bodyLimit: BODY_LIMIT_BYTES,
    frameworkErrors: answerFrameworkError,
    routerOptions: { maxParamLength: 512 },
  });
  parseRequests(app);
  answerErrors(app, log);
  logRequests(app, log);
  answerWhenDurable(app, parts.durability);
  app.register(cors, {
    origin: '*',
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
    exposedHeaders: EXPOSED_HEADERS,
    strictPreflight: false,
  });
  collectOpenApi(app);
  const auth = authentication(app, teams);
  app.register(async (scope) => {
    const routes = scope.withTypeProvider<TypeBoxTypeProvider>();
    serveHealth(routes);
    serveSandboxes(routes, { sandboxes, templates, config, auth });
    serveLifecycle(routes, { sandboxes, config, auth });
    serveSandboxNetwork(routes, { sandboxes, auth });
    serveSecrets(routes, { secrets: parts.secrets, auth });
    serveSnapshots(routes, { snapshots: parts.snapshots, auth });
    serveSandboxLogs(routes, { history: parts.history, sandboxes, auth });
    serveMetrics(routes, { metrics: parts.metrics, sandboxes, auth });
    serveEvents(routes, { history: parts.history, auth });
    serveTemplates(routes, { templates, auth });
    serveTemplateBuilds(routes, { ...parts, auth });
    serveTemplateDockerfiles(routes, { ...parts, auth });
    serveTemplateFiles(routes, { ...parts, auth });
    serveTemplateTags(routes, { ...parts, auth });
    serveTemplateRemoval(routes, { removal: parts.removal, auth });
    serveTeams(routes, { teams, auth });
    serveOpenApi(routes);
  });
  return app;
}

/** Creating and killing are not worth the wait: a loss of power ends every running sandbox anyhow. */
const FLEETING = new Set(['POST /sandboxes', 'POST /v2/sandboxes', 'DELETE /sandboxes/:sandboxID']);

/** What a request has changed is on disk when it is answered. */
function answerWhenDurable(app: FastifyInstance, durability: Pick<Durability, 'settled'>): void {
  app.addHook('onSend', async ({ method, routeOptions }, reply) => {
    const changes = method !== 'GET' && method !== 'HEAD' && method !== 'OPTIONS' && reply.statusCode < 300;
    if (changes && !FLEETING.has(`${method} ${routeOptions.url}`)) await durability.settled();
  });
}

function logRequests(app: FastifyInstance, log: Log): void {
  app.addHook('onResponse', async (request, reply) => {
    log.debug('request', {
      method: request.method,
      path: pathOf(request),
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime * 10) / 10,
    });
  });
}
