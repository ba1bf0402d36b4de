import { type Static, Type } from 'typebox';
import type { SandboxLogQuery } from '../db/sandbox-log-store.ts';
import type { SandboxLogRow } from '../db/schema.ts';
import { type History, LOG_LEVELS } from '../events/history.ts';
import type { Sandboxes } from '../sandboxes/contract.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { dateTime } from './date-time.ts';
import { failures } from './errors.ts';
import { parseSandboxId } from './sandbox-id.ts';
import { SandboxParams } from './sandbox-schemas.ts';
import { type Api, DateTime, OneOf, StringMap } from './typebox-provider.ts';

interface Dependencies {
  history: Pick<History, 'listLines' | 'hasLines'>;
  sandboxes: Pick<Sandboxes, 'get'>;
  auth: Authentication;
}

const MOST = 1000;
const Level = OneOf(['debug', 'info', 'warn', 'error'], { title: 'LogLevel' });

const SandboxLogEntry = Type.Object(
  { timestamp: DateTime, level: Level, message: Type.String(), fields: StringMap },
  { title: 'SandboxLogEntry' },
);

const SandboxLogs = Type.Object(
  {
    logs: Type.Array(
      Type.Object(
        { timestamp: DateTime, line: Type.String({ description: 'JSON with level, logger, message' }) },
        { title: 'SandboxLog' },
      ),
    ),
    logEntries: Type.Array(SandboxLogEntry),
  },
  { title: 'SandboxLogs' },
);

const QueryV1 = Type.Object({
  start: Type.Optional(Type.Integer({ minimum: 0, description: 'Milliseconds since 1970' })),
  limit: Type.Optional(Type.Integer({ minimum: 0, maximum: MOST, default: MOST })),
});

const QueryV2 = Type.Object({
  cursor: Type.Optional(Type.Integer({ minimum: 0, description: 'Milliseconds since 1970' })),
  limit: Type.Optional(Type.Integer({ minimum: 0, maximum: MOST, default: MOST })),
  direction: Type.Optional(OneOf(['forward', 'backward'], { default: 'backward' })),
  level: Type.Optional(Level),
  search: Type.Optional(Type.String({ maxLength: 256 })),
});

/** The logs of sandboxes. They are there after a sandbox ended: the last line says what ended it. */
export function serveSandboxLogs(app: Api, { history, sandboxes, auth }: Dependencies): void {
  const onRequest = auth.team;
  const one = { params: SandboxParams, tags: ['sandboxes'], ...byTeam };

  const read = async (teamId: string, sandboxID: string, query: Partial<SandboxLogQuery>): Promise<SandboxLogRow[]> => {
    const sandboxId = parseSandboxId(sandboxID);
    if (!(await history.hasLines(sandboxId, teamId))) await sandboxes.get(teamId, sandboxId);
    const all = { direction: 'forward' as const, cursor: null, limit: MOST, leastLevel: 0, search: '' };
    return history.listLines({ ...all, ...query, sandboxId, teamId });
  };

  app.get(
    '/sandboxes/:sandboxID/logs',
    {
      onRequest,
      schema: {
        ...one,
        querystring: QueryV1,
        response: { 200: SandboxLogs, ...failures },
        summary: 'Read the log of a sandbox, oldest lines first',
        deprecated: true,
      },
    },
    async (request) => {
      const { start = null, limit = MOST } = request.query;
      const rows = await read(callerOf(request).team.id, request.params.sandboxID, { cursor: start, limit });
      return { logs: rows.map(lineOf), logEntries: rows.map(entryOf) };
    },
  );
  app.get(
    '/v2/sandboxes/:sandboxID/logs',
    {
      onRequest,
      schema: {
        ...one,
        querystring: QueryV2,
        response: { 200: Type.Object({ logs: Type.Array(SandboxLogEntry) }, { title: 'SandboxLogsV2' }), ...failures },
        summary: 'Read the log of a sandbox, newest lines first unless asked otherwise',
      },
    },
    async (request) => {
      const { cursor = null, limit = MOST, direction = 'backward', level = 'debug', search = '' } = request.query;
      const rows = await read(callerOf(request).team.id, request.params.sandboxID, {
        cursor,
        limit,
        direction,
        leastLevel: LOG_LEVELS.indexOf(level),
        search,
      });
      return { logs: rows.map(entryOf) };
    },
  );
}

function entryOf(row: SandboxLogRow): Static<typeof SandboxLogEntry> {
  const { message, fields } = row;
  return { timestamp: dateTime(row.createdAt), level: LOG_LEVELS[row.level] ?? 'info', message, fields };
}

/** The command line parses every line as JSON and reads its level; what it does not know it shows as it is. */
function lineOf(row: SandboxLogRow): { timestamp: string; line: string } {
  const { timestamp, level, message, fields } = entryOf(row);
  return { timestamp, line: JSON.stringify({ ...fields, level, logger: 'sandbar', message }) };
}
