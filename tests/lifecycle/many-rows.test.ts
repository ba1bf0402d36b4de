import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newSandboxId } from '../../src/core/ids.ts';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { sandboxColumns } from '../../src/db/schema.ts';
import { rowOf } from '../support/rows.ts';
import { startTestService, type TestService } from '../support/service.ts';

const FEW = 100;
const MANY = 10_000;
const ROUNDS = 150;

// Rows are put beside the service into its store; no machine knows of them, so they are gone before the service stops.
describe('ten thousand sandboxes', () => {
  let service: TestService;
  let database: Database;

  beforeAll(async () => {
    service = await startTestService({ env: { SANDBAR_WARM_POOL: '0' } });
    database = await openDatabase({ stateDir: service.stateDir, databaseUrl: undefined });
  });
  afterAll(async () => {
    await database?.deleteFrom('sandboxes').execute();
    await database?.destroy();
    await service?.dispose();
  });

  async function fillUpTo(count: number): Promise<string[]> {
    const team = await database.selectFrom('teams').selectAll().executeTakeFirstOrThrow();
    const present = await database.selectFrom('sandboxes').select('id').execute();
    const now = Date.now();
    const rows = Array.from({ length: count - present.length }, (_, index) => {
      // The first hundred are half running; the many that come later are paused, and newer.
      const state = present.length === 0 && index % 2 === 0 ? 'running' : 'paused';
      const startedAt = now + index;
      return rowOf({ id: newSandboxId(), teamId: team.id, state, startedAt, endAt: now + 3_600_000 });
    });
    await database.transaction().execute(async (transaction) => {
      for (let start = 0; start < rows.length; start += 100) {
        const some = rows.slice(start, start + 100).map((row) => sandboxColumns.encode(row));
        await transaction.insertInto('sandboxes').values(some).execute();
      }
    });
    return rows.map(({ id }) => id);
  }

  /** Time of a call, ms: of the fastest tenth the slowest, since whatever else the machine does only adds to it. */
  async function timeOf(url: (round: number) => string): Promise<number> {
    const taken: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const before = performance.now();
      const response = await service.fetch(url(round));
      await response.text();
      expect(response.status).toBe(200);
      taken.push(performance.now() - before);
    }
    return taken.sort((a, b) => a - b)[ROUNDS / 10] ?? 0;
  }

  it('are read and listed in the time of a hundred', async () => {
    const measure = async (ids: string[]) => ({
      get: await timeOf((round) => `/sandboxes/${ids[(round * 97) % ids.length]}`),
      list: await timeOf(() => '/v2/sandboxes'),
      running: await timeOf(() => '/v2/sandboxes?state=running&limit=10'),
    });
    const fewIds = await fillUpTo(FEW);
    await measure(fewIds);
    const few = await measure(fewIds);
    const many = await measure(await fillUpTo(MANY));
    // Half a millisecond is what the machine itself adds or takes.
    for (const call of ['get', 'list', 'running'] as const)
      expect(many[call], `${call}, ms; with a hundred ${few[call]}`).toBeLessThan(few[call] * 1.5 + 0.5);
  });
});
