import { type Static, Type } from 'typebox';
import { SandbarError } from '../core/errors.ts';
import type { TeamRow, TemplateRow } from '../db/schema.ts';
import { DEFAULT_TAG, parseTemplateReference } from '../db/template-reference.ts';
import { mayUse, type Page, type TemplateStore, type TemplateSummary, type TimeCursor } from '../db/template-store.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { failures } from './errors.ts';
import { decodeNextToken, encodeNextToken } from './list-cursor.ts';
import * as schemas from './template-schemas.ts';
import { buildOf, tagOf, templateOf, templateWithBuildsOf } from './template-views.ts';
import type { Api } from './typebox-provider.ts';

/** What the API reads of templates. */
export type TemplateReader = Pick<TemplateStore, 'find' | 'list' | 'summary' | 'listBuilds' | 'listTags'>;

interface Dependencies {
  templates: TemplateReader;
  auth: Authentication;
}

const tags = ['templates'];
const PAGE = 100;

export function serveTemplates(app: Api, { templates, auth }: Dependencies): void {
  const onRequest = auth.team;

  app.get(
    '/templates',
    {
      onRequest,
      schema: {
        querystring: schemas.TeamQuery,
        response: { 200: Type.Array(schemas.Template), ...failures },
        tags,
        ...byTeam,
        summary: 'List all templates',
      },
    },
    async (request) => {
      const team = chosenTeam(callerOf(request).team, request.query.teamID);
      const all: TemplateSummary[] = [];
      let cursor: TimeCursor | null = null;
      do {
        const page: Page<TemplateSummary> = await templates.list(team.id, PAGE, cursor);
        all.push(...page.items);
        cursor = page.next;
      } while (cursor !== null);
      return all.flatMap(templateOf);
    },
  );
  app.get(
    '/v2/templates',
    {
      onRequest,
      schema: {
        querystring: schemas.TeamPageQuery,
        response: { 200: Type.Array(schemas.Template), ...failures },
        tags,
        ...byTeam,
        summary: 'List templates, a page at a time (next page: header X-Next-Token)',
      },
    },
    async (request, reply) => {
      const team = chosenTeam(callerOf(request).team, request.query.teamID);
      const { items, next } = await templates.list(team.id, request.query.limit ?? PAGE, cursorOf(request.query));
      if (next !== null) reply.header('X-Next-Token', encodeNextToken({ time: next.createdAt, id: next.id }));
      return reply.send(items.flatMap(templateOf));
    },
  );
  app.get(
    '/templates/:templateID',
    {
      onRequest,
      schema: {
        params: schemas.TemplateParams,
        querystring: schemas.PageQuery,
        response: { 200: schemas.TemplateWithBuilds, ...failures },
        tags,
        ...byTeam,
        summary: 'Read a template and a page of its builds',
      },
    },
    async (request, reply) => {
      const { team } = callerOf(request);
      const { templateID } = request.params;
      const template = await templates.find(templateID, team);
      if (template === undefined || !mayUse(team.id, template)) throw noSuchTemplate(templateID);
      const { items, next } = await templates.listBuilds(
        template.id,
        request.query.limit ?? PAGE,
        cursorOf(request.query),
      );
      if (next !== null) reply.header('X-Next-Token', encodeNextToken({ time: next.createdAt, id: next.id }));
      return reply.send(templateWithBuildsOf(await templates.summary(template), items.map(buildOf)));
    },
  );
  app.get(
    '/templates/:templateID/tags',
    {
      onRequest,
      schema: {
        params: schemas.TemplateParams,
        response: { 200: Type.Array(schemas.TemplateTag), ...failures },
        tags,
        ...byTeam,
        summary: 'List the tags of a template',
      },
    },
    async (request) => {
      const template = await named(templates, request.params.templateID, callerOf(request).team);
      return (await templates.listTags(template.id)).map(tagOf);
    },
  );
  app.get(
    '/templates/aliases/:alias',
    {
      onRequest,
      schema: {
        params: schemas.AliasParams,
        response: { 200: schemas.TemplateAlias, ...failures },
        tags,
        ...byTeam,
        summary: 'Find a template by name',
      },
    },
    async (request) => {
      const template = await named(templates, request.params.alias, callerOf(request).team);
      return { templateID: template.id, public: template.public };
    },
  );
}

/** The template of a name in the caller's own namespace, or global. Says 403 where it exists but is another team's. */
async function named(templates: TemplateReader, name: string, team: TeamRow): Promise<TemplateRow> {
  const { namespace, tag } = parseTemplateReference(name);
  if (namespace !== undefined && namespace !== team.slug)
    throw new SandbarError('invalid', `namespace '${namespace}' must match your team '${team.slug}'`);
  const template = await templates.find(name, team);
  if (template === undefined) throw noSuchTemplate(name);
  if (!mayUse(team.id, template)) throw new SandbarError('forbidden', `You don't have access to template '${name}'`);
  if (tag !== undefined && tag !== DEFAULT_TAG) {
    const known = await templates.listTags(template.id);
    if (!known.some((other) => other.tag === tag))
      throw new SandbarError('not_found', `tag '${tag}' does not exist for template '${name}'`);
  }
  return template;
}

function noSuchTemplate(name: string): SandbarError {
  return new SandbarError('not_found', `template '${name}' not found`);
}

/** The parameter may repeat the caller's team; it cannot choose another. */
function chosenTeam(team: TeamRow, teamID: string | undefined): TeamRow {
  if (teamID !== undefined && teamID !== '' && teamID !== team.id)
    throw new SandbarError('forbidden', "You don't have access to this team");
  return team;
}

function cursorOf({ nextToken }: Static<typeof schemas.PageQuery>): TimeCursor | null {
  if (!nextToken) return null;
  const { time, id } = decodeNextToken(nextToken);
  return { createdAt: time, id };
}
