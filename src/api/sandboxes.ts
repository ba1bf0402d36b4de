import type { FastifyReply } from 'fastify';
import { type Static, Type } from 'typebox';
import type { Config } from '../core/config.ts';
import { SandbarError } from '../core/errors.ts';
import type { TeamRow } from '../db/schema.ts';
import type { ListQuery, Sandboxes, SandboxRow } from '../sandboxes/contract.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { checkTimeout, createSpecOf, type Generation } from './create-sandbox.ts';
import { firstMillisecond } from './date-time.ts';
import { failures } from './errors.ts';
import { decodeNextToken, encodeNextToken } from './list-cursor.ts';
import { parseMetadataFilter } from './metadata-filter.ts';
import { commaList, optionalBody } from './request-parsing.ts';
import { parseSandboxId } from './sandbox-id.ts';
import * as schemas from './sandbox-schemas.ts';
import { listedSandboxOf, sandboxDetailOf, sandboxOf } from './sandbox-views.ts';
import type { TemplateReader } from './templates.ts';
import { type Api, Nothing } from './typebox-provider.ts';

interface Dependencies {
  sandboxes: Sandboxes;
  templates: Pick<TemplateReader, 'find'>;
  config: Pick<Config, 'maxTimeoutSeconds'>;
  auth: Authentication;
}

const v1: Generation = { defaultTimeoutSeconds: schemas.V1_TIMEOUT_SECONDS, alwaysSecure: false };
const v2: Generation = { defaultTimeoutSeconds: schemas.V2_TIMEOUT_SECONDS, alwaysSecure: true };

const LEAST_REFRESH_SECONDS = 15;
const tags = ['sandboxes'];
const created = { 201: schemas.Sandbox, ...failures };
const connected = { 200: schemas.Sandbox, 201: schemas.Sandbox, ...failures };
const nothing = { 204: Nothing('Done'), ...failures };

export function serveSandboxes(app: Api, { sandboxes, templates, config, auth }: Dependencies): void {
  const { maxTimeoutSeconds } = config;
  const onRequest = auth.team;
  const one = { params: schemas.SandboxParams, tags, ...byTeam };

  const create = async (team: TeamRow, body: schemas.NewSandbox, generation: Generation, reply: FastifyReply) => {
    const spec = createSpecOf(body, generation, maxTimeoutSeconds);
    return sandboxOf(await sandboxes.create(team, spec, whileConnected(reply)));
  };

  app.post(
    '/sandboxes',
    {
      onRequest,
      schema: { body: schemas.NewSandboxV1, response: created, tags, ...byTeam, summary: 'Create a sandbox' },
    },
    async (request, reply) => reply.code(201).send(await create(callerOf(request).team, request.body, v1, reply)),
  );
  app.post(
    '/v2/sandboxes',
    {
      onRequest,
      schema: { body: schemas.NewSandboxV2, response: created, tags, ...byTeam, summary: 'Create a secure sandbox' },
    },
    async (request, reply) => reply.code(201).send(await create(callerOf(request).team, request.body, v2, reply)),
  );

  app.get(
    '/sandboxes',
    {
      onRequest,
      schema: {
        querystring: schemas.ListQueryV1,
        response: { 200: Type.Array(schemas.ListedSandbox), ...failures },
        tags,
        ...byTeam,
        summary: 'List all running sandboxes',
        deprecated: true,
      },
    },
    async (request) => {
      const rows = await allRunning(sandboxes, callerOf(request).team.id, parseMetadataFilter(request.query.metadata));
      return rows.map(listedSandboxOf);
    },
  );
  app.get(
    '/v2/sandboxes',
    {
      onRequest,
      preValidation: commaList('state'),
      schema: {
        querystring: schemas.ListQueryV2,
        response: { 200: Type.Array(schemas.ListedSandbox), ...failures },
        tags,
        ...byTeam,
        summary: 'List sandboxes, a page at a time (next page: header X-Next-Token)',
      },
    },
    async (request, reply) => {
      const { team } = callerOf(request);
      const query = listQueryOf(request.query);
      const { template } = request.query;
      if (template !== undefined) {
        if (template.includes(':'))
          throw new SandbarError('invalid', 'The template filter takes a template without a tag');
        query.templateId = (await templates.find(template, team))?.id ?? null;
        if (query.templateId === null) return reply.send([]);
      }
      const { rows, next, totalRunning } = await sandboxes.list(team.id, query);
      if (next !== null)
        reply.header('X-Next-Token', encodeNextToken({ time: next.startedAt, id: next.id }, query.order));
      if (query.states.includes('running')) reply.header('X-Total-Running', String(totalRunning));
      return reply.send(rows.map(listedSandboxOf));
    },
  );

  app.get(
    '/sandboxes/:sandboxID',
    { onRequest, schema: { ...one, response: { 200: schemas.SandboxDetail, ...failures }, summary: 'Read a sandbox' } },
    async (request) =>
      sandboxDetailOf(await sandboxes.get(callerOf(request).team.id, parseSandboxId(request.params.sandboxID))),
  );
  app.delete(
    '/sandboxes/:sandboxID',
    { onRequest, schema: { ...one, response: nothing, summary: 'Kill a sandbox' } },
    async (request, reply) => {
      await sandboxes.kill(callerOf(request).team.id, parseSandboxId(request.params.sandboxID));
      return reply.code(204).send(undefined);
    },
  );
  app.post(
    '/sandboxes/:sandboxID/timeout',
    { onRequest, schema: { ...one, body: schemas.TimeoutBody, response: nothing, summary: 'Set the deadline' } },
    async (request, reply) => {
      const id = parseSandboxId(request.params.sandboxID);
      await sandboxes.setTimeout(callerOf(request).team.id, id, request.body.timeout);
      return reply.code(204).send(undefined);
    },
  );
  app.post(
    '/sandboxes/:sandboxID/refreshes',
    {
      onRequest,
      preValidation: optionalBody,
      schema: { ...one, body: schemas.RefreshBody, response: nothing, summary: 'Move the deadline to a later time' },
    },
    async (request, reply) => {
      const seconds = Math.max(request.body.duration ?? 0, LEAST_REFRESH_SECONDS);
      await sandboxes.refresh(callerOf(request).team.id, parseSandboxId(request.params.sandboxID), seconds);
      return reply.code(204).send(undefined);
    },
  );

  const connect = async (team: TeamRow, sandboxID: string, body: Static<typeof schemas.ConnectV2>) => {
    const timeoutSeconds = checkTimeout(body.timeout ?? schemas.V2_TIMEOUT_SECONDS, maxTimeoutSeconds);
    return sandboxes.connect(team.id, parseSandboxId(sandboxID), { timeoutSeconds, memory: body.memory ?? true });
  };
  app.post(
    '/sandboxes/:sandboxID/connect',
    {
      onRequest,
      schema: {
        ...one,
        body: schemas.ConnectV1,
        response: connected,
        summary: 'Extend (200) or resume (201) a sandbox',
      },
    },
    async (request, reply) => {
      const { row, resumed } = await connect(callerOf(request).team, request.params.sandboxID, request.body);
      return reply.code(resumed ? 201 : 200).send(sandboxOf(row));
    },
  );
  app.post(
    '/v2/sandboxes/:sandboxID/connect',
    {
      onRequest,
      preValidation: optionalBody,
      schema: {
        ...one,
        body: schemas.ConnectV2,
        response: connected,
        summary: 'Extend (200) or resume (201) a sandbox',
      },
    },
    async (request, reply) => {
      const { row, resumed } = await connect(callerOf(request).team, request.params.sandboxID, request.body);
      return reply.code(resumed ? 201 : 200).send(sandboxOf(row));
    },
  );
}

/** Aborts when the client goes away before it was answered: nobody would know of the sandbox. */
function whileConnected(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableEnded) controller.abort(new SandbarError('unavailable', 'the client closed the connection'));
  });
  return controller.signal;
}

function listQueryOf(query: Static<typeof schemas.ListQueryV2>): ListQuery {
  const order = query.order ?? 'desc';
  const position = query.nextToken ? decodeNextToken(query.nextToken, order) : undefined;
  return {
    metadata: parseMetadataFilter(query.metadata),
    states: query.state ?? ['running', 'paused'],
    order,
    startedAfter: query.startedAfter === undefined ? null : firstMillisecond(query.startedAfter),
    templateId: null,
    limit: query.limit ?? 100,
    cursor: position === undefined ? null : { startedAt: position.time, id: position.id },
  };
}

async function allRunning(
  sandboxes: Sandboxes,
  teamId: string,
  metadata: Record<string, string>,
): Promise<SandboxRow[]> {
  const rows: SandboxRow[] = [];
  const query: ListQuery = { ...listQueryOf({}), metadata, states: ['running'], limit: 1000 };
  do {
    const page = await sandboxes.list(teamId, query);
    rows.push(...page.rows);
    query.cursor = page.next;
  } while (query.cursor !== null);
  return rows;
}
