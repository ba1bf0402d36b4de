import { Sandbox } from 'e2b';
import type { RuntimeName } from '../src/core/config.ts';
import { newSandboxId, newUuid } from '../src/core/ids.ts';
import { type Database, openDatabase } from '../src/db/database.ts';
import { sandboxColumns, sandboxEventColumns } from '../src/db/schema.ts';
import { newEventId } from '../src/events/event-id.ts';
import { rowOf } from '../tests/support/rows.ts';
import { startTestService, type TestService } from '../tests/support/service.ts';
import type { Row } from './report.ts';
import { type Summary, Timings, timed } from './statistics.ts';

export interface GrowthSize {
  few: number;
  many: number;
  calls: number;
  creates: number;
}

/** A service with a store of its own, and the sandboxes that are in it. */
interface Stocked {
  service: TestService;
  ids: string[];
  where: string;
}

/** One kind of call, which throws when it is not answered as it should be. */
interface Call {
  what: string;
  count: number;
  make: (stocked: Stocked, index: number) => Promise<number>;
}

/**
 * The same calls to two services, one with few and one with many sandboxes of the past in its store, turn by turn, so that a moment in which the
 * machine is slow falls on both.
 */
export async function measureGrowth(runtime: RuntimeName, size: GrowthSize): Promise<Row[]> {
  return withStock(runtime, size.few, (few) =>
    withStock(runtime, size.many, async (many) => {
      const rows: Row[] = [];
      for (const call of callsOf(size)) {
        // The first calls pay for what is made once.
        await takeTurns({ ...call, count: Math.ceil(call.count / 4) }, few, many);
        const [base, grown] = await takeTurns(call, few, many);
        const ratio = grown.medianMs / base.medianMs;
        rows.push({ what: call.what, where: few.where, summary: base });
        rows.push({ what: call.what, where: many.where, summary: grown, note: `${ratio.toFixed(2)}x` });
      }
      return rows;
    }),
  );
}

async function takeTurns(call: Call, few: Stocked, many: Stocked): Promise<[few: Summary, many: Summary]> {
  const timings = [new Timings(), new Timings()] as const;
  for (let index = 0; index < call.count; index++) {
    await timings[0].add(() => call.make(few, index));
    await timings[1].add(() => call.make(many, index));
  }
  return [timings[0].summary, timings[1].summary];
}

/**
 * Sandboxes of the past: paused ones, and the events of as many that were killed. The rows are put beside the service into its store; no machine
 * knows of them, so they are gone before the service stops.
 */
async function withStock<T>(runtime: RuntimeName, count: number, use: (stocked: Stocked) => Promise<T>): Promise<T> {
  const service = await startTestService({ runtime });
  try {
    const database = await openDatabase({ stateDir: service.stateDir, databaseUrl: undefined });
    try {
      const ids = await fill(database, count);
      return await use({ service, ids, where: `${runtime}, ${count.toLocaleString('en')} rows` });
    } finally {
      await database.deleteFrom('sandboxes').execute();
      await database.destroy();
    }
  } finally {
    await service.dispose();
  }
}

function callsOf(size: GrowthSize): Call[] {
  const get = (url: (stocked: Stocked, index: number) => string) => async (stocked: Stocked, index: number) => {
    const { ms, value } = await timed(async () => {
      const response = await stocked.service.fetch(url(stocked, index));
      await response.text();
      return response;
    });
    if (!value.ok) throw new Error(`${url(stocked, index)} answers ${value.status}`);
    return ms;
  };
  return [
    { what: 'get', count: size.calls, make: get(({ ids }, index) => `/sandboxes/${ids[(index * 97) % ids.length]}`) },
    { what: 'list, first page', count: size.calls, make: get(() => '/v2/sandboxes') },
    { what: 'list the running', count: size.calls, make: get(() => '/v2/sandboxes?state=running&limit=10') },
    {
      what: 'create, cold',
      count: size.creates,
      make: async ({ service }) => {
        const { ms, value } = await timed(() => Sandbox.create(service.connection));
        await value.kill();
        return ms;
      },
    },
  ];
}

async function fill(database: Database, count: number): Promise<string[]> {
  const team = await database.selectFrom('teams').selectAll().executeTakeFirstOrThrow();
  const now = Date.now();
  const rows = Array.from({ length: count }, (_, index) =>
    rowOf({ id: newSandboxId(), teamId: team.id, state: 'paused', startedAt: now + index, endAt: now + 3_600_000 }),
  );
  await database.transaction().execute(async (transaction) => {
    for (let start = 0; start < rows.length; start += 100) {
      const some = rows.slice(start, start + 100);
      await transaction
        .insertInto('sandboxes')
        .values(some.map((row) => sandboxColumns.encode(row)))
        .execute();
      await transaction
        .insertInto('sandboxEvents')
        .values(some.flatMap(() => pastEvents(team.id, now)).map((event) => sandboxEventColumns.encode(event)))
        .execute();
    }
  });
  return rows.map(({ id }) => id);
}

/** What stays of a sandbox that was killed. */
function pastEvents(teamId: string, createdAt: number) {
  const common = {
    teamId,
    sandboxId: newSandboxId(),
    templateId: 'template',
    buildId: 'build',
    executionId: newUuid(),
  };
  return ['sandbox.lifecycle.created', 'sandbox.lifecycle.killed'].map((type) => ({
    id: newEventId(createdAt),
    ...common,
    type,
    data: {},
    createdAt,
  }));
}
