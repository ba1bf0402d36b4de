import { type Static, Type } from 'typebox';
import { SandbarError } from '../core/errors.ts';
import type { TeamSample, Timed, UsageSample } from '../events/contract.ts';
import type { Metrics } from '../events/metrics.ts';
import type { Sandboxes, SandboxRow } from '../sandboxes/contract.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { dateTime } from './date-time.ts';
import { failures } from './errors.ts';
import { commaList } from './request-parsing.ts';
import { parseSandboxId } from './sandbox-id.ts';
import { SandboxParams } from './sandbox-schemas.ts';
import { type Api, DateTime, OneOf } from './typebox-provider.ts';

interface Dependencies {
  metrics: Pick<Metrics, 'range' | 'latest'>;
  sandboxes: Pick<Sandboxes, 'get'>;
  auth: Authentication;
}

const HOUR_MS = 3_600_000;

const time = { timestamp: DateTime, timestampUnix: Type.Integer({ description: 'Seconds since 1970' }) };

const SandboxMetric = Type.Object(
  {
    ...time,
    cpuCount: Type.Integer({ minimum: 1 }),
    cpuUsedPct: Type.Number({ description: 'Percent of all its processors together' }),
    memUsed: Type.Integer({ description: 'Bytes' }),
    memTotal: Type.Integer({ description: 'Bytes' }),
    memCache: Type.Integer({ description: 'Bytes' }),
    diskUsed: Type.Integer({ description: 'Bytes' }),
    diskTotal: Type.Integer({ description: 'Bytes' }),
  },
  { title: 'SandboxMetric' },
);

const TeamMetric = Type.Object(
  { ...time, concurrentSandboxes: Type.Integer(), sandboxStartRate: Type.Number({ description: 'A second' }) },
  { title: 'TeamMetric' },
);

const MaxTeamMetric = Type.Object({ ...time, value: Type.Number() }, { title: 'MaxTeamMetric' });

const range = {
  start: Type.Optional(Type.Integer({ minimum: 0, description: 'Seconds since 1970' })),
  end: Type.Optional(Type.Integer({ minimum: 0, description: 'Seconds since 1970' })),
};
const RangeQuery = Type.Object(range);
const MaxQuery = Type.Object({ ...range, metric: OneOf(['concurrent_sandboxes', 'sandbox_start_rate']) });
const BatchQuery = Type.Object({
  sandbox_ids: Type.Array(Type.String(), { minItems: 1, maxItems: 100, uniqueItems: true }),
});
const TeamParams = Type.Object({ teamID: Type.String() });

export function serveMetrics(app: Api, { metrics, sandboxes, auth }: Dependencies): void {
  const onRequest = auth.team;

  app.get(
    '/sandboxes/:sandboxID/metrics',
    {
      onRequest,
      schema: {
        params: SandboxParams,
        querystring: RangeQuery,
        response: { 200: Type.Array(SandboxMetric), ...failures },
        tags: ['sandboxes'],
        ...byTeam,
        summary: 'What a sandbox used over time',
      },
    },
    async (request) => {
      const row = await found(sandboxes, callerOf(request).team.id, parseSandboxId(request.params.sandboxID));
      if (row === undefined) {
        rangeOf(request.query, Date.now());
        return [];
      }
      const { from, to } = rangeOf(request.query, row.startedAt);
      return (await metrics.range<UsageSample>(row.id, from, to)).map(sandboxMetricOf);
    },
  );
  app.get(
    '/sandboxes/metrics',
    {
      onRequest,
      preValidation: commaList('sandbox_ids'),
      schema: {
        querystring: BatchQuery,
        response: {
          200: Type.Object({
            sandboxes: Type.Unsafe<Record<string, Static<typeof SandboxMetric>>>({
              type: 'object',
              additionalProperties: SandboxMetric,
            }),
          }),
          ...failures,
        },
        tags: ['sandboxes'],
        ...byTeam,
        summary: 'What several sandboxes use now',
      },
    },
    async (request) => {
      const { team } = callerOf(request);
      const ids = request.query.sandbox_ids.map(parseSandboxId);
      const rows = await Promise.all(ids.map((id) => found(sandboxes, team.id, id)));
      const own = rows.flatMap((row) => row?.id ?? []);
      const latest = await metrics.latest<UsageSample>(own);
      return { sandboxes: Object.fromEntries([...latest].map(([id, sample]) => [id, sandboxMetricOf(sample)])) };
    },
  );
  app.get(
    '/teams/:teamID/metrics',
    {
      onRequest,
      schema: {
        params: TeamParams,
        querystring: RangeQuery,
        response: { 200: Type.Array(TeamMetric), ...failures },
        tags: ['teams'],
        ...byTeam,
        summary: 'How many sandboxes a team ran over time',
      },
    },
    async (request) => {
      const { from, to } = rangeOf(request.query, Date.now() - HOUR_MS);
      const teamId = ownTeam(callerOf(request).team.id, request.params.teamID);
      return (await metrics.range<TeamSample>(teamId, from, to)).map(({ at, sample }) => ({
        ...timeOf(at),
        ...sample,
      }));
    },
  );
  app.get(
    '/teams/:teamID/metrics/max',
    {
      onRequest,
      schema: {
        params: TeamParams,
        querystring: MaxQuery,
        response: { 200: MaxTeamMetric, ...failures },
        tags: ['teams'],
        ...byTeam,
        summary: 'The most sandboxes that a team ran or started',
      },
    },
    async (request) => {
      const { from, to } = rangeOf(request.query, Date.now() - HOUR_MS);
      const teamId = ownTeam(callerOf(request).team.id, request.params.teamID);
      const field =
        request.query.metric === 'concurrent_sandboxes'
          ? ('concurrentSandboxes' as const)
          : ('sandboxStartRate' as const);
      const samples = await metrics.range<TeamSample>(teamId, from, to);
      const most = samples.reduce(
        (best, { at, sample }) => (sample[field] > best.value ? { at, value: sample[field] } : best),
        { at: to, value: 0 },
      );
      return { ...timeOf(most.at), value: most.value };
    },
  );
}

async function found(sandboxes: Pick<Sandboxes, 'get'>, teamId: string, id: string): Promise<SandboxRow | undefined> {
  try {
    return await sandboxes.get(teamId, id);
  } catch (error) {
    if (error instanceof SandbarError && error.kind === 'not_found') return undefined;
    throw error;
  }
}

function rangeOf({ start, end }: Static<typeof RangeQuery>, from: number): { from: number; to: number } {
  const range = {
    from: start === undefined ? from : start * 1000,
    to: end === undefined ? Date.now() : end * 1000 + 999,
  };
  if (range.from > range.to) throw new SandbarError('invalid', 'start time must be before the end time');
  return range;
}

function ownTeam(own: string, asked: string): string {
  if (own !== asked) throw new SandbarError('forbidden', "You don't have access to this team");
  return own;
}

function sandboxMetricOf({ at, sample }: Timed<UsageSample>): Static<typeof SandboxMetric> {
  return { ...timeOf(at), ...sample };
}

function timeOf(at: number): { timestamp: string; timestampUnix: number } {
  return { timestamp: dateTime(at), timestampUnix: Math.floor(at / 1000) };
}
