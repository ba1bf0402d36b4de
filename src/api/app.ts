import cors from '@fastify/cors';
import fastify, { type FastifyInstance } from 'fastify';
import type { Config } from '../core/config.ts';
import type { Log } from '../core/log.ts';
import type { Sandboxes } from '../sandboxes/contract.ts';
import type { Teams } from '../teams/teams.ts';
import { authentication } from './auth.ts';
import { answerErrors, answerFrameworkError, pathOf } from './errors.ts';
import { serveHealth } from './health.ts';
import { collectOpenApi, serveOpenApi } from './openapi.ts';
import { parseRequests } from './request-parsing.ts';
import { serveSandboxes } from './sandboxes.ts';
import { serveTeams } from './teams.ts';
import { serveTemplates, type TemplateReader } from './templates.ts';
import type { TypeBoxTypeProvider } from './typebox-provider.ts';

export interface ApiDependencies {
  sandboxes: Sandboxes;
  templates: TemplateReader;
  teams: Pick<Teams, 'authenticateKey' | 'authenticateToken' | 'createKey' | 'listKeys' | 'renameKey' | 'revokeKey'>;
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
export function buildApi({ sandboxes, templates, teams, config, log }: ApiDependencies): FastifyInstance {
  const app = fastify({
    logger: false,
    bodyLimit: BODY_LIMIT_BYTES,
    frameworkErrors: answerFrameworkError,
    routerOptions: { maxParamLength: 512 },
  });
  parseRequests(app);
  answerErrors(app, log);
  logRequests(app, log);
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
    serveTemplates(routes, { templates, auth });
    serveTeams(routes, { teams, auth });
    serveOpenApi(routes);
  });
  return app;
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
