import { Sandbox } from 'e2b';
import type { RuntimeName } from '../src/core/config.ts';
import { newSandboxId, newUuid } from '../src/core/ids.ts';
import { type Database, openDatabase } from '../src/db/database.ts';
import { sandboxColumns, sandboxEventColumns } from '../src/db/schema.ts';
import { newEventId } from '../src/events/event-id.ts';
import { rowOf } from '../tests/support/rows.ts';
import { startTestService, type TestService } from '../tests/support/service.ts';
import type { Row } from './report.ts';
import { repeat, timed } from './statistics.ts';

export interface GrowthSize {
  few: number;
  many: number;
  calls: number;
  creates: number;
}

/**
 * The same calls with few and with many sandboxes of the past in the store: paused ones, and the events of as many that were killed. The rows
 * are put beside the service into its store; no machine knows of them, so they are gone before the service stops.
 */
export async function measureGrowth(runtime: RuntimeName, size: GrowthSize): Promise<Row[]> {
  const service = await startTestService({ runtime });
  try {
    const database = await openDatabase({ stateDir: service.stateDir, databaseUrl: undefined });
    try {
      const few = await fill(database, size.few);
      // The first calls pay for what is made once.
      await measure(service, few, runtime, size, '');
      const before = await measure(service, few, runtime, size, `${size.few} rows`);
      const many = await fill(database, size.many - size.few);
      const after = await measure(service, many, runtime, size, `${size.many.toLocaleString('en')} rows`);
      return after.flatMap((row, index) => {
        const base = before[index];
        const ratio = (row.summary?.medianMs ?? Number.NaN) / (base?.summary?.medianMs ?? Number.NaN);
        return [...(base === undefined ? [] : [base]), { ...row, note: `${ratio.toFixed(2)}x` }];
      });
    } finally {
      await database.deleteFrom('sandboxes').execute();
      await database.destroy();
    }
  } finally {
    await service.dispose();
  }
}

async function measure(
  service: TestService,
  ids: readonly string[],
  runtime: string,
  size: GrowthSize,
  rows: string,
): Promise<Row[]> {
  const where = `${runtime}, ${rows}`;
  const call = (url: (index: number) => string) =>
    repeat(size.calls, async (index) => {
      const { ms, value } = await timed(async () => {
        const response = await service.fetch(url(index));
        await response.text();
        return response;
      });
      if (!value.ok) throw new Error(`${url(index)} answers ${value.status}`);
      return ms;
    });
  return [
    { what: 'get', where, summary: await call((index) => `/sandboxes/${ids[(index * 97) % ids.length]}`) },
    { what: 'list, first page', where, summary: await call(() => '/v2/sandboxes') },
    { what: 'list the running', where, summary: await call(() => '/v2/sandboxes?state=running&limit=10') },
    {
      what: 'create, cold',
      where,
      summary: await repeat(size.creates, async () => {
        const { ms, value } = await timed(() => Sandbox.create(service.connection));
        await value.kill();
        return ms;
      }),
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
