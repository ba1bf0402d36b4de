import { createHash } from 'node:crypto';
import { type QueryResult, SqliteAdapter, type Transaction } from 'kysely';
import type { ListPage, ListQuery, SandboxRow, SandboxState } from '../sandboxes/contract.ts';
import type { Database } from './database.ts';
import { statesOf } from './public-state.ts';
import { type Schema, sandboxColumns } from './schema.ts';
import { type Executor, statement, type Value } from './statement.ts';

/** What may change in a sandbox after its creation; its state changes only through `compareAndSetState`. */
export type SandboxPatch = Partial<Omit<SandboxRow, 'id' | 'teamId' | 'state' | 'metadata' | 'createdAt'>>;

/** States in which a sandbox takes one of its team's places. */
const PLACE_TAKING: readonly SandboxState[] = ['starting', 'running', 'snapshotting', 'pausing', 'resuming'];

const PAIRS_PER_INSERT = 1000;

/** The sandboxes that exist. A killed one is deleted, so that nothing here grows with history. */
export class SandboxStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  insert(row: SandboxRow): Promise<void> {
    return this.#db.transaction().execute((transaction) => insertRow(transaction, row));
  }

  /** Inserts unless the team already has `limit` sandboxes. Exact also when replicas insert at the same time. */
  async insertWithin(row: SandboxRow, limit: number): Promise<boolean> {
    if (isSqlite(this.#db) && Object.keys(row.metadata).length === 0)
      return hasChanged(await insertCounted(this.#db, { ...sandboxColumns.encode(row), limit }));
    return this.#db.transaction().execute(async (transaction) => {
      await lockTeam(transaction, row.teamId);
      if ((await countPlaces(transaction, row.teamId)) >= limit) return false;
      await insertRow(transaction, row);
      return true;
    });
  }

  async get(id: string): Promise<SandboxRow | undefined> {
    const [stored] = (await selectById(this.#db, { id })).rows;
    return stored && sandboxColumns.decode(stored);
  }

  /** False when there is no such sandbox. */
  async update(id: string, patch: SandboxPatch): Promise<boolean> {
    const columns = sandboxColumns.encode(patch);
    if (Object.keys(columns).length === 0) return (await this.get(id)) !== undefined;
    const result = await this.#db.updateTable('sandboxes').set(columns).where('id', '=', id).executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }

  /** Moves the sandbox to `to` if it is in one of `from`, patch included, in one step. False when it is not. */
  async compareAndSetState(
    id: string,
    from: readonly SandboxState[],
    to: SandboxState,
    patch: SandboxPatch = {},
  ): Promise<boolean> {
    const columns = { ...sandboxColumns.encode(patch), state: to };
    const before = from.map((state, index) => [`${BEFORE}${index}`, state]);
    const result = await moveState(this.#db, { id, ...columns, ...Object.fromEntries(before) });
    return hasChanged(result);
  }

  /** Moves a running sandbox whose deadline is `now` or earlier to `to`. False when it was extended or is not running. */
  async compareAndSetExpired(id: string, now: number, to: SandboxState, patch: SandboxPatch = {}): Promise<boolean> {
    const result = await this.#db
      .updateTable('sandboxes')
      .set({ ...sandboxColumns.encode(patch), state: to })
      .where('id', '=', id)
      .where('state', '=', 'running')
      .where('endAt', '<=', now)
      .executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }

  /**
   * Moves a paused sandbox to `resuming`, which takes one of its team's places, unless all `limit` are taken. Exact also when
   * replicas do it at the same time.
   */
  resumeWithin(
    row: Pick<SandboxRow, 'id' | 'teamId'>,
    limit: number,
    patch: SandboxPatch,
  ): Promise<'resuming' | 'full' | 'not paused'> {
    return this.#db.transaction().execute(async (transaction) => {
      await lockTeam(transaction, row.teamId);
      if ((await countPlaces(transaction, row.teamId)) >= limit) return 'full';
      const result = await transaction
        .updateTable('sandboxes')
        .set({ ...sandboxColumns.encode(patch), state: 'resuming' })
        .where('id', '=', row.id)
        .where('state', '=', 'paused')
        .executeTakeFirst();
      return result.numUpdatedRows > 0n ? 'resuming' : 'not paused';
    });
  }

  /** Sets the deadline of a running sandbox. False when it is not running. */
  async setDeadline(id: string, endAt: number): Promise<boolean> {
    const result = await this.#db
      .updateTable('sandboxes')
      .set({ endAt })
      .where('id', '=', id)
      .where('state', 'in', statesOf.running)
      .executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }

  /** Moves the deadline of a running sandbox to a later time; one that is later already stays. False when it is not running. */
  async extendDeadline(id: string, endAt: number): Promise<boolean> {
    const result = await this.#db
      .updateTable('sandboxes')
      .set(({ eb, ref }) => ({
        endAt: eb.case().when('endAt', '<', endAt).then(endAt).else(ref('endAt')).end(),
      }))
      .where('id', '=', id)
      .where('state', 'in', statesOf.running)
      .executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }

  /** False when there was no such sandbox. */
  async delete(id: string): Promise<boolean> {
    return hasChanged(await deleteById(this.#db, { id }));
  }

  /** One page, ordered by start (newest first unless `order` is asc), then by id. */
  async list(teamId: string, query: ListQuery): Promise<ListPage> {
    if (query.states.length === 0) return { rows: [], next: null, totalRunning: 0 };
    // One more than asked for tells whether another page follows.
    const limit = query.limit + 1;
    const found =
      query.states.length > 1
        ? await this.#page(
            teamId,
            query,
            query.states.flatMap((state) => statesOf[state]),
            limit,
          )
        : await this.#pageOfState(teamId, query, limit);
    const rows = found.slice(0, query.limit);
    const last = rows.at(-1);
    return {
      rows,
      next: found.length > query.limit && last !== undefined ? { startedAt: last.startedAt, id: last.id } : null,
      totalRunning: query.states.includes('running') ? await this.#countMatchingRunning(teamId, query) : 0,
    };
  }

  /**
   * A page of one public state. Each of the states behind it is read by itself, in order and no further than the page goes: read together
   * they would be sorted, or all others of the team be passed over.
   */
  async #pageOfState(teamId: string, query: ListQuery, limit: number): Promise<SandboxRow[]> {
    const pages: SandboxRow[] = [];
    for (const state of query.states.flatMap((shown) => statesOf[shown]))
      pages.push(...(await this.#page(teamId, query, [state], limit)));
    const direction = query.order === 'asc' ? 1 : -1;
    pages.sort((a, b) => direction * (a.startedAt - b.startedAt) || (a.id < b.id ? -1 : 1));
    return pages.slice(0, limit);
  }

  async #page(teamId: string, query: ListQuery, states: readonly SandboxState[], limit: number): Promise<SandboxRow[]> {
    const ascending = query.order === 'asc';
    const { cursor } = query;
    const [only] = states;
    let page = this.#matching(teamId, query).selectAll('sandboxes');
    page = states.length === 1 && only ? page.where('state', '=', only) : page.where('state', 'in', states);
    if (cursor !== null) {
      page = page.where(({ eb, and, or }) =>
        or([
          eb('startedAt', ascending ? '>' : '<', cursor.startedAt),
          and([eb('startedAt', '=', cursor.startedAt), eb('id', '>', cursor.id)]),
        ]),
      );
    }
    const found = await page
      .orderBy('startedAt', ascending ? 'asc' : 'desc')
      .orderBy('id', 'asc')
      .limit(limit)
      .execute();
    return found.map((stored) => sandboxColumns.decode(stored));
  }

  async allInStates(states: readonly SandboxState[]): Promise<SandboxRow[]> {
    const found = await this.#db.selectFrom('sandboxes').selectAll().where('state', 'in', states).execute();
    return found.map((stored) => sandboxColumns.decode(stored));
  }

  /** Sandboxes that take one of the team's places: all but the paused and the dying. */
  countRunning(teamId: string): Promise<number> {
    return countPlaces(this.#db, teamId);
  }

  /** The sandboxes that run, with what is needed to measure them. */
  running(): Promise<Pick<SandboxRow, 'id' | 'teamId' | 'cpuCount' | 'startedAt'>[]> {
    return this.#db
      .selectFrom('sandboxes')
      .select(['id', 'teamId', 'cpuCount', 'startedAt'])
      .where('state', '=', 'running')
      .execute();
  }

  /** The earliest deadline of a running sandbox that is later than `after`; null when there is none. */
  async nextDeadline(after = 0): Promise<number | null> {
    const first = await this.#db
      .selectFrom('sandboxes')
      .select('endAt')
      .where('state', '=', 'running')
      .where('endAt', '>', after)
      .orderBy('endAt')
      .limit(1)
      .executeTakeFirst();
    return first?.endAt ?? null;
  }

  /** Running sandboxes whose deadline is `now` or earlier, the longest overdue first. */
  async expired(now: number, limit: number): Promise<SandboxRow[]> {
    const found = await this.#db
      .selectFrom('sandboxes')
      .selectAll()
      .where('state', '=', 'running')
      .where('endAt', '<=', now)
      .orderBy('endAt')
      .limit(limit)
      .execute();
    return found.map((stored) => sandboxColumns.decode(stored));
  }

  async #countMatchingRunning(teamId: string, query: ListQuery): Promise<number> {
    const { count } = await this.#matching(teamId, query)
      .select(({ fn }) => fn.countAll<number>().as('count'))
      .where('state', 'in', statesOf.running)
      .executeTakeFirstOrThrow();
    return Number(count);
  }

  /** The team's sandboxes that pass the filters of a list, state and position aside. */
  #matching(teamId: string, query: ListQuery) {
    let matching = this.#db.selectFrom('sandboxes').where('teamId', '=', teamId);
    if (query.startedAfter !== null) matching = matching.where('startedAt', '>=', query.startedAfter);
    if (query.templateId !== null) matching = matching.where('templateId', '=', query.templateId);
    for (const hash of pairHashes(query.metadata)) {
      matching = matching.where('id', 'in', (nested) =>
        nested.selectFrom('sandboxMetadata').select('sandboxId').where('pairHash', '=', hash),
      );
    }
    return matching;
  }
}

async function insertRow(transaction: Transaction<Schema>, row: SandboxRow): Promise<void> {
  await transaction.insertInto('sandboxes').values(sandboxColumns.encode(row)).execute();
  const pairs = pairHashes(row.metadata).map((pairHash) => ({ pairHash, sandboxId: row.id }));
  // Both dialects limit the parameters of a statement; metadata has no limit.
  for (let start = 0; start < pairs.length; start += PAIRS_PER_INSERT) {
    const some = pairs.slice(start, start + PAIRS_PER_INSERT);
    await transaction.insertInto('sandboxMetadata').values(some).execute();
  }
}

type StoredSandbox = Schema['sandboxes'];

const selectById = statement((db, value: Value<Pick<StoredSandbox, 'id'>>) =>
  db.selectFrom('sandboxes').selectAll().where('id', '=', value('id')),
);

const deleteById = statement((db, value: Value<Pick<StoredSandbox, 'id'>>) =>
  db.deleteFrom('sandboxes').where('id', '=', value('id')),
);

/** Names of the states that a sandbox may come from begin with this, beside those of the columns that change. */
const BEFORE = 'before:';

const moveState = statement((db, value: Value<Partial<StoredSandbox> & Record<string, unknown>>, names) => {
  const columns = names.filter((name) => name !== 'id' && !name.startsWith(BEFORE));
  return db
    .updateTable('sandboxes')
    .set(Object.fromEntries(columns.map((name) => [name, value(name)])))
    .where('id', '=', value('id') as string)
    .where(
      'state',
      'in',
      names.filter((name) => name.startsWith(BEFORE)).map((name) => value(name) as SandboxState),
    );
});

/** Count and insert in one statement, which there nobody can come between. */
const insertCounted = statement((db, value: Value<StoredSandbox & { limit: number }>, names) => {
  const columns = names.filter((name) => name !== 'limit');
  return db
    .insertInto('sandboxes')
    .columns(columns)
    .expression(
      db
        .selectNoFrom(({ val }) => columns.map((name) => val(value(name)).as(name)))
        .where(placesTaken(db, value('teamId')), '<', value('limit')),
    );
});

function hasChanged({ numAffectedRows }: QueryResult<unknown>): boolean {
  return (numAffectedRows ?? 0n) > 0n;
}

function isSqlite(db: Executor): boolean {
  return db.getExecutor().adapter instanceof SqliteAdapter;
}

/** The write locks the team's row, so what takes a place of one team queues up and each sees the one before. */
async function lockTeam(transaction: Transaction<Schema>, teamId: string): Promise<void> {
  // There every transaction has the one lock of all writers from its beginning (sqlite.ts).
  if (isSqlite(transaction)) return;
  await transaction
    .updateTable('teams')
    .set((row) => ({ name: row.ref('name') }))
    .where('id', '=', teamId)
    .execute();
}

async function countPlaces(db: Executor, teamId: string): Promise<number> {
  return Number((await placesTaken(db, teamId).executeTakeFirstOrThrow()).count);
}

function placesTaken(db: Executor, teamId: string) {
  return db
    .selectFrom('sandboxes')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('teamId', '=', teamId)
    .where('state', 'in', PLACE_TAKING);
}

function pairHashes(metadata: Record<string, string>): string[] {
  return Object.entries(metadata).map((pair) => createHash('sha256').update(JSON.stringify(pair)).digest('base64url'));
}
