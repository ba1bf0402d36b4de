import type { FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { SandbarError } from '../core/errors.ts';
import type { TeamRow, TemplateBuildRow, TemplateRow } from '../db/schema.ts';
import type { TemplateStore } from '../db/template-store.ts';
import type { TemplateBuilds } from '../templates/builds.ts';
import type { BuildPlan } from '../templates/contract.ts';
import { planOfDockerfile } from '../templates/dockerfile/plan.ts';
import { type Authentication, byUser, callerOf } from './auth.ts';
import { failures } from './errors.ts';
import * as schemas from './template-schemas.ts';
import { legacyTemplateOf } from './template-views.ts';
import { type Api, Nothing } from './typebox-provider.ts';

interface Dependencies {
  builds: Pick<TemplateBuilds, 'request' | 'begin' | 'own'>;
  templates: Pick<TemplateStore, 'getBuild' | 'summary'>;
  auth: Authentication;
}

type Wanted = Static<typeof schemas.NewTemplate>;

const tags = ['templates'];

/** Builds from the text of a Dockerfile, as the first clients asked for them: by access token. They begin at once. */
export function serveTemplateDockerfiles(app: Api, { builds, templates, auth }: Dependencies): void {
  const onRequest = auth.user;
  const response = { 202: schemas.TemplateLegacy, ...failures };

  app.post(
    '/templates',
    {
      onRequest,
      schema: {
        body: schemas.NewTemplate,
        response,
        tags,
        ...byUser,
        deprecated: true,
        summary: 'Build a new template from a Dockerfile',
      },
    },
    async (request, reply) => {
      const team = teamOf(request, request.body.teamID);
      const made = await build(request, request.body, team, request.body.alias || undefined);
      return reply.code(202).send(legacyTemplateOf(await templates.summary(made.template), made.build));
    },
  );
  app.post(
    '/templates/:templateID',
    {
      onRequest,
      schema: {
        params: schemas.TemplateParams,
        body: schemas.NewTemplate,
        response,
        tags,
        ...byUser,
        deprecated: true,
        summary: 'Build a template again from a Dockerfile',
      },
    },
    async (request, reply) => {
      const team = teamOf(request, request.body.teamID);
      const template = await builds.own(team, request.params.templateID);
      const made = await build(request, request.body, team, template.id);
      return reply.code(202).send(legacyTemplateOf(await templates.summary(made.template), made.build));
    },
  );
  app.post(
    '/templates/:templateID/builds/:buildID',
    {
      onRequest,
      schema: {
        params: schemas.BuildParams,
        response: { 202: Nothing('The build has started'), ...failures },
        tags,
        ...byUser,
        deprecated: true,
        summary: 'Start a build from a Dockerfile; it has begun with the request already',
      },
    },
    async (request, reply) => {
      const template = await builds.own(callerOf(request).team, request.params.templateID);
      const build = await templates.getBuild(request.params.buildID);
      if (build === undefined || build.templateId !== template.id)
        throw new SandbarError('not_found', `Build '${request.params.buildID}' not found`);
      if (build.status === 'waiting')
        throw new SandbarError('invalid', 'this build waits for its steps: POST them to /v2/templates/…/builds/…');
      return reply.code(202).header('content-length', '0').send(undefined);
    },
  );

  async function build(
    request: FastifyRequest,
    body: Wanted,
    team: TeamRow,
    name: string | undefined,
  ): Promise<{ template: TemplateRow; build: TemplateBuildRow }> {
    const { cpuCount, memoryMB } = body;
    const plan = planOf(body);
    const made = await builds.request(
      { team, userId: callerOf(request).user?.id ?? null },
      { name, tags: [], cpuCount, memoryMb: memoryMB, minFreeDiskMb: undefined },
    );
    await builds.begin(team, made.build, plan);
    return made;
  }
}

/** Commands beside the Dockerfile win over those in it. */
function planOf({ dockerfile, filesHash, startCmd, readyCmd }: Wanted): BuildPlan {
  const plan = planOfDockerfile(dockerfile, { ...(filesHash !== undefined && { filesHash }) });
  return { ...plan, ...(startCmd && { startCmd }), ...(readyCmd && { readyCmd }) };
}

function teamOf(request: FastifyRequest, teamID: string | undefined): TeamRow {
  const { team, memberships } = callerOf(request);
  if (!teamID || teamID === team.id) return team;
  const member = memberships.find((membership) => membership.team.id === teamID);
  if (member === undefined) throw new SandbarError('forbidden', "You don't have access to this team");
  return member.team;
}
