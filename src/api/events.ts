import { type Static, Type } from 'typebox';
import type { SandboxEventRow } from '../db/schema.ts';
import type { History } from '../events/history.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { dateTime } from './date-time.ts';
import { failures } from './errors.ts';
import { commaList } from './request-parsing.ts';
import { parseSandboxId } from './sandbox-id.ts';
import { SandboxParams } from './sandbox-schemas.ts';
import { type Api, DateTime } from './typebox-provider.ts';

interface Dependencies {
  history: Pick<History, 'listEvents'>;
  auth: Authentication;
}

const PAGE = 10;

export const SandboxEvent = Type.Object(
  {
    version: Type.String(),
    id: Type.String({ format: 'uuid' }),
    type: Type.String({ description: 'sandbox.lifecycle.created, paused, resumed, updated, snapshotted or killed' }),
    eventData: Type.Unsafe<Record<string, unknown>>({ type: 'object', additionalProperties: true }),
    sandboxBuildId: Type.String(),
    sandboxExecutionId: Type.String(),
    sandboxId: Type.String(),
    sandboxTeamId: Type.String(),
    sandboxTemplateId: Type.String(),
    timestamp: DateTime,
  },
  { title: 'SandboxEvent' },
);

const Query = Type.Object({
  offset: Type.Optional(Type.Integer({ minimum: 0, default: 0 })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: PAGE })),
  orderAsc: Type.Optional(Type.Boolean({ default: false })),
  types: Type.Optional(Type.Array(Type.String())),
});

/** What happened to sandboxes in the last days, ended ones included. */
export function serveEvents(app: Api, { history, auth }: Dependencies): void {
  const onRequest = auth.team;
  const common = { response: { 200: Type.Array(SandboxEvent), ...failures }, tags: ['events'], ...byTeam };

  const read = async (teamId: string, sandboxId: string | null, query: Static<typeof Query>) => {
    const { offset = 0, limit = PAGE, orderAsc = false, types = [] } = query;
    const asked = { teamId, sandboxId, types, offset, limit, ascending: orderAsc };
    return (await history.listEvents(asked)).map(sandboxEventOf);
  };

  app.get(
    '/events/sandboxes',
    {
      onRequest,
      preValidation: commaList('types'),
      schema: { ...common, querystring: Query, summary: "List events of a team's sandboxes" },
    },
    (request) => read(callerOf(request).team.id, null, request.query),
  );
  app.get(
    '/events/sandboxes/:sandboxID',
    {
      onRequest,
      preValidation: commaList('types'),
      schema: { ...common, params: SandboxParams, querystring: Query, summary: 'List events of a sandbox' },
    },
    (request) => read(callerOf(request).team.id, parseSandboxId(request.params.sandboxID), request.query),
  );
}

export function sandboxEventOf(row: SandboxEventRow): Static<typeof SandboxEvent> {
  return {
    version: 'v1',
    id: row.id,
    type: row.type,
    eventData: row.data,
    sandboxBuildId: row.buildId,
    sandboxExecutionId: row.executionId,
    sandboxId: row.sandboxId,
    sandboxTeamId: row.teamId,
    sandboxTemplateId: row.templateId,
    timestamp: dateTime(row.createdAt),
  };
}
