import type { FastifyRequest } from 'fastify';
import { SandbarError } from '../core/errors.ts';
import type { BuildStore } from '../db/build-store.ts';
import type { TemplateBuildRow, TemplateRow } from '../db/schema.ts';
import { mayUse, type TemplateStore } from '../db/template-store.ts';
import { levelNumbers } from '../templates/build/log.ts';
import type { BuildCaller, TemplateBuilds } from '../templates/builds.ts';
import { planOf } from '../templates/wire-plan.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { failures } from './errors.ts';
import * as schemas from './template-schemas.ts';
import { legacyTemplateOf, logEntryOf, requestedTemplateOf } from './template-views.ts';
import { type Api, Nothing } from './typebox-provider.ts';

interface Dependencies {
  builds: Pick<TemplateBuilds, 'request' | 'begin' | 'own'>;
  buildStore: Pick<BuildStore, 'logs' | 'logsAround' | 'stepLogs'>;
  templates: Pick<TemplateStore, 'get' | 'getBuild' | 'summary' | 'find'>;
  auth: Authentication;
}

const tags = ['templates'];
const PAGE = 100;

/** Asking for builds, starting them, and following them. */
export function serveTemplateBuilds(app: Api, { builds, buildStore, templates, auth }: Dependencies): void {
  const onRequest = auth.team;

  app.post(
    '/v3/templates',
    {
      onRequest,
      schema: {
        body: schemas.NewTemplateV3,
        response: { 202: schemas.RequestedTemplate, ...failures },
        tags,
        ...byTeam,
        summary: 'Ask for a build of a template',
      },
    },
    async (request, reply) => {
      const { name, alias, cpuCount, memoryMB, minFreeDiskMb } = request.body;
      const wanted = name || alias;
      if (!wanted) throw new SandbarError('invalid', 'name is required');
      const made = await builds.request(buildCallerOf(request), {
        name: wanted,
        tags: request.body.tags ?? [],
        cpuCount,
        memoryMb: memoryMB,
        minFreeDiskMb,
      });
      return reply.code(202).send(requestedTemplateOf(await templates.summary(made.template), made));
    },
  );
  app.post(
    '/v2/templates',
    {
      onRequest,
      schema: {
        body: schemas.NewTemplateV2,
        response: { 202: schemas.TemplateLegacy, ...failures },
        tags,
        ...byTeam,
        deprecated: true,
        summary: 'Ask for a build of a template (before v3)',
      },
    },
    async (request, reply) => {
      const { alias, cpuCount, memoryMB } = request.body;
      const { template, build } = await builds.request(buildCallerOf(request), {
        name: alias,
        tags: [],
        cpuCount,
        memoryMb: memoryMB,
        minFreeDiskMb: undefined,
      });
      return reply.code(202).send(legacyTemplateOf(await templates.summary(template), build));
    },
  );
  app.post(
    '/v2/templates/:templateID/builds/:buildID',
    {
      onRequest,
      schema: {
        params: schemas.BuildParams,
        body: schemas.BuildStart,
        response: { 202: Nothing('The build has started'), ...failures },
        tags,
        ...byTeam,
        summary: 'Start a build with its steps',
      },
    },
    async (request, reply) => {
      const { team } = callerOf(request);
      const { build } = await ownBuild(request.params, request);
      await builds.begin(team, build, planOf(request.body));
      // Without a length clients would look for a body.
      return reply.code(202).header('content-length', '0').send(undefined);
    },
  );
  app.get(
    '/templates/:templateID/builds/:buildID/status',
    {
      onRequest,
      schema: {
        params: schemas.BuildParams,
        querystring: schemas.StatusQuery,
        response: { 200: schemas.TemplateBuildInfo, ...failures },
        tags,
        ...byTeam,
        summary: 'How a build stands, and its log from an offset on',
      },
    },
    async (request) => {
      // The log is read after the status: once that is final, so is the log.
      const { build } = await usableBuild(request.params, request);
      const { logsOffset = 0, limit = PAGE, level = 'debug' } = request.query;
      const lines = await buildStore.logs(build.id, logsOffset, { leastLevel: levelNumbers[level], limit });
      return {
        templateID: build.templateId,
        buildID: build.id,
        status: build.status,
        logs: [],
        logEntries: lines.map(logEntryOf),
        ...(build.reason !== null && { reason: await reasonOf(build) }),
      };
    },
  );
  app.get(
    '/templates/:templateID/builds/:buildID/logs',
    {
      onRequest,
      schema: {
        params: schemas.BuildParams,
        querystring: schemas.BuildLogsQuery,
        response: { 200: schemas.BuildLogs, ...failures },
        tags,
        ...byTeam,
        summary: 'The log of a build by time',
      },
    },
    async (request) => {
      const { build } = await usableBuild(request.params, request, 'not_found');
      const { cursor, limit = PAGE, direction = 'forward', level = 'debug' } = request.query;
      const query = { leastLevel: levelNumbers[level], limit };
      const lines = await buildStore.logsAround(build.id, cursor, direction, query);
      return { logs: lines.map(logEntryOf) };
    },
  );

  /** A build of a template of the caller's own. */
  async function ownBuild(
    { templateID, buildID }: { templateID: string; buildID: string },
    request: FastifyRequest,
  ): Promise<{ template: TemplateRow; build: TemplateBuildRow }> {
    const template = await builds.own(callerOf(request).team, templateID);
    const build = await templates.getBuild(buildID);
    if (build === undefined || build.templateId !== template.id)
      throw new SandbarError('not_found', `Build '${buildID}' not found`);
    return { template, build };
  }

  /** A build of a template that the caller may use. */
  async function usableBuild(
    { templateID, buildID }: { templateID: string; buildID: string },
    request: FastifyRequest,
    missing: 'invalid' | 'not_found' = 'invalid',
  ): Promise<{ build: TemplateBuildRow }> {
    const { team } = callerOf(request);
    const template = await templates.find(templateID, team);
    if (template === undefined) throw new SandbarError('not_found', `template '${templateID}' not found`);
    if (!mayUse(team.id, template))
      throw new SandbarError('forbidden', `You don't have access to template '${templateID}'`);
    const build = await templates.getBuild(buildID);
    if (build === undefined || build.templateId !== template.id)
      throw new SandbarError(missing, `Build '${buildID}' not found`);
    return { build };
  }

  async function reasonOf({ id, reason }: TemplateBuildRow) {
    const lines =
      reason?.step === undefined
        ? []
        : await buildStore.stepLogs(id, reason.step, { leastLevel: levelNumbers.warn, limit: PAGE });
    return {
      message: reason?.message ?? '',
      ...(reason?.step !== undefined && { step: reason.step }),
      logEntries: lines.map(logEntryOf),
    };
  }
}

export function buildCallerOf(request: FastifyRequest): BuildCaller {
  const { team, user } = callerOf(request);
  return { team, userId: user?.id ?? null };
}
