import { Type } from 'typebox';
import { SandbarError } from '../core/errors.ts';
import type { BuildStore } from '../db/build-store.ts';
import type { TeamRow, TemplateRow } from '../db/schema.ts';
import { DEFAULT_TAG, parseTemplateReference, referencePath } from '../db/template-reference.ts';
import { mayUse, type TemplateStore } from '../db/template-store.ts';
import type { TemplateBuilds } from '../templates/builds.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { failures } from './errors.ts';
import * as schemas from './template-schemas.ts';
import { type Api, Nothing } from './typebox-provider.ts';

interface Dependencies {
  builds: Pick<TemplateBuilds, 'own'>;
  buildStore: Pick<BuildStore, 'removeTags' | 'setPublic'>;
  templates: Pick<TemplateStore, 'find' | 'listTags' | 'setTag' | 'summary'>;
  auth: Authentication;
}

const tags = ['templates'];

/** Changes to what a template is called and who may use it. */
export function serveTemplateTags(app: Api, { builds, buildStore, templates, auth }: Dependencies): void {
  const onRequest = auth.team;

  app.post(
    '/templates/tags',
    {
      onRequest,
      schema: {
        body: schemas.TagAssignment,
        response: { 201: schemas.AssignedTags, ...failures },
        tags,
        ...byTeam,
        summary: 'Point tags at the build that a name means',
      },
    },
    async (request, reply) => {
      const { target } = request.body;
      const template = await named(target, callerOf(request).team);
      const wanted = [...new Set(request.body.tags.map(parseTag))];
      const from = parseTemplateReference(target).tag ?? DEFAULT_TAG;
      const source = (await templates.listTags(template.id)).find(({ tag }) => tag === from);
      if (source === undefined)
        throw new SandbarError('not_found', `tag '${from}' does not exist for template '${pathOf(target)}'`);
      const createdAt = Date.now();
      for (const tag of wanted)
        await templates.setTag({ templateId: template.id, tag, buildId: source.buildId, createdAt });
      return reply.code(201).send({ tags: wanted, buildID: source.buildId });
    },
  );
  app.delete(
    '/templates/tags',
    {
      onRequest,
      schema: {
        body: schemas.TagRemoval,
        response: { 204: Nothing('Removed'), ...failures },
        tags,
        ...byTeam,
        summary: 'Take tags away from a template',
      },
    },
    async (request, reply) => {
      const { name } = request.body;
      if (request.body.tags.length === 0) throw new SandbarError('invalid', 'At least one tag is required');
      if (parseTemplateReference(name).tag !== undefined)
        throw new SandbarError('invalid', `the name '${name}' must not hold a tag`);
      const unwanted = request.body.tags.map(parseTag);
      if (unwanted.includes(DEFAULT_TAG)) throw new SandbarError('invalid', "Cannot delete the 'default' tag");
      const template = await named(name, callerOf(request).team);
      await buildStore.removeTags(template.id, unwanted);
      return reply.code(204).send(undefined);
    },
  );
  app.patch(
    '/templates/:templateID',
    {
      onRequest,
      schema: {
        params: schemas.TemplateParams,
        body: schemas.TemplateChange,
        response: { 200: Type.Object({}), ...failures },
        tags,
        ...byTeam,
        deprecated: true,
        summary: 'Make a template public or private (before v2)',
      },
    },
    async (request) => {
      await change(request.params.templateID, callerOf(request).team, request.body.public);
      return {};
    },
  );
  app.patch(
    '/v2/templates/:templateID',
    {
      onRequest,
      schema: {
        params: schemas.TemplateParams,
        body: schemas.TemplateChange,
        response: { 200: schemas.ChangedTemplate, ...failures },
        tags,
        ...byTeam,
        summary: 'Make a template public or private',
      },
    },
    async (request) => {
      const template = await change(request.params.templateID, callerOf(request).team, request.body.public);
      return { names: (await templates.summary(template)).names };
    },
  );

  async function change(reference: string, team: TeamRow, isPublic: boolean | undefined): Promise<TemplateRow> {
    const template = await builds.own(team, reference);
    if (isPublic !== undefined) await buildStore.setPublic(template.id, isPublic, Date.now());
    return template;
  }

  /** The team's own template of a name. Says 403 where it exists but is another team's. */
  async function named(name: string, team: TeamRow): Promise<TemplateRow> {
    const { namespace } = parseTemplateReference(name);
    if (namespace !== undefined && namespace !== team.slug)
      throw new SandbarError('invalid', `namespace '${namespace}' must match your team '${team.slug}'`);
    const template = await templates.find(name, team);
    if (template === undefined) throw new SandbarError('not_found', `template '${pathOf(name)}' not found`);
    if (template.teamId !== team.id || !mayUse(team.id, template))
      throw new SandbarError('forbidden', `You don't have access to template '${pathOf(name)}'`);
    return template;
  }
}

function pathOf(reference: string): string {
  return referencePath(parseTemplateReference(reference));
}

function parseTag(text: string): string {
  const { tag } = parseTemplateReference(`x:${text}`);
  return tag ?? DEFAULT_TAG;
}
