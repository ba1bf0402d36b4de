import type { Transaction } from 'kysely';
import { SandbarError } from '../core/errors.ts';
import { newTemplateId, newUuid } from '../core/ids.ts';
import type { Database } from './database.ts';
import {
  type BuildLogRow,
  type BuildReason,
  type BuildStatus,
  buildRequestColumns,
  type Schema,
  type TeamRow,
  type TemplateBuildRow,
  type TemplateRow,
  templateBuildColumns,
} from './schema.ts';
import * as queries from './template-queries.ts';
import type { TemplateReference } from './template-reference.ts';
import type { BuildContent } from './template-store.ts';

/** A build that somebody asks for. */
export interface NewBuild {
  team: Pick<TeamRow, 'id' | 'slug'>;
  /** Name of the template, in the team's own namespace; undefined: a new template without a name. */
  name: TemplateReference | undefined;
  /** Tags the build gets when it is ready. */
  tags: string[];
  /** User who asks; null where only a key is known: then the team's first member stands for it. */
  userId: string | null;
  content: Pick<BuildContent, 'cpuCount' | 'memoryMb' | 'diskSizeMb' | 'envdVersion'>;
  now: number;
}

export interface LogQuery {
  /** Lines of lower levels are left out, and not counted. */
  leastLevel: number;
  limit: number;
}

/** Rows of builds that are made from steps, from the request to the end. */
export class BuildStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Writes a build that waits to be started, in the template of that name or a new one. */
  request(wanted: NewBuild): Promise<{ template: TemplateRow; build: TemplateBuildRow }> {
    return this.#db.transaction().execute(async (transaction) => {
      const template = await ensureTemplate(transaction, wanted);
      const build: TemplateBuildRow = {
        ...wanted.content,
        id: newUuid(),
        templateId: template.id,
        status: 'waiting',
        layers: [],
        startCmd: null,
        readyCmd: null,
        defaultUser: 'user',
        defaultWorkdir: '/home/user',
        env: {},
        snapshotId: null,
        reason: null,
        sourceSandboxId: null,
        createdAt: wanted.now,
        updatedAt: wanted.now,
        finishedAt: null,
      };
      await queries.insertBuild(transaction, build);
      const request = { buildId: build.id, teamId: wanted.team.id, tags: wanted.tags };
      await transaction.insertInto('buildRequests').values(buildRequestColumns.encode(request)).execute();
      return { template, build };
    });
  }

  async tagsOf(buildId: string): Promise<string[]> {
    const stored = await this.#db
      .selectFrom('buildRequests')
      .selectAll()
      .where('buildId', '=', buildId)
      .executeTakeFirst();
    return stored === undefined ? [] : buildRequestColumns.decode(stored).tags;
  }

  /** Moves a build from one status to another; false when it was not in the first. */
  async advance(buildId: string, from: BuildStatus, to: BuildStatus, now: number): Promise<boolean> {
    const result = await this.#db
      .updateTable('templateBuilds')
      .set({ status: to, updatedAt: now })
      .where('id', '=', buildId)
      .where('status', '=', from)
      .executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }

  /** Notes the snapshot that a build is about to write, so that it is known to be somebody's from its first byte. */
  async noteSnapshot(buildId: string, snapshotId: string | null): Promise<void> {
    await this.#db.updateTable('templateBuilds').set({ snapshotId }).where('id', '=', buildId).execute();
  }

  /** Makes a build ready and points its tags at it. False when it is not being built any more. */
  finish(buildId: string, content: Partial<BuildContent>, tags: string[], now: number): Promise<boolean> {
    return this.#db.transaction().execute(async (transaction) => {
      const { numUpdatedRows } = await transaction
        .updateTable('templateBuilds')
        .set({ ...templateBuildColumns.encode(content), status: 'ready', updatedAt: now, finishedAt: now })
        .where('id', '=', buildId)
        .where('status', '=', 'building')
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return false;
      const { templateId } = await transaction
        .selectFrom('templateBuilds')
        .select('templateId')
        .where('id', '=', buildId)
        .executeTakeFirstOrThrow();
      for (const tag of tags) await queries.setTag(transaction, { templateId, tag, buildId, createdAt: now });
      await transaction.updateTable('templates').set({ updatedAt: now }).where('id', '=', templateId).execute();
      return true;
    });
  }

  /** Makes a build that waits or is being built one that failed. False when it had ended already. */
  async fail(buildId: string, reason: BuildReason, now: number): Promise<boolean> {
    const result = await this.#db
      .updateTable('templateBuilds')
      .set({
        ...templateBuildColumns.encode({ reason, snapshotId: null }),
        status: 'error',
        updatedAt: now,
        finishedAt: now,
      })
      .where('id', '=', buildId)
      .where('status', 'in', ['waiting', 'building'])
      .executeTakeFirst();
    return result.numUpdatedRows > 0n;
  }

  /** Builds that are being made, of everybody. */
  async underWay(): Promise<TemplateBuildRow[]> {
    const found = await this.#db.selectFrom('templateBuilds').selectAll().where('status', '=', 'building').execute();
    return found.map((stored) => templateBuildColumns.decode(stored));
  }

  /** Builds of a template that wait or are being made, with the tags they are to get. */
  async unfinished(templateId: string): Promise<{ buildId: string; tags: string[]; status: BuildStatus }[]> {
    const found = await this.#db
      .selectFrom('templateBuilds')
      .innerJoin('buildRequests', 'buildRequests.buildId', 'templateBuilds.id')
      .select(['buildId', 'tags', 'status'])
      .where('templateId', '=', templateId)
      .where('status', 'in', ['waiting', 'building'])
      .execute();
    return found.map(({ tags, ...rest }) => ({ ...rest, tags: JSON.parse(tags) as string[] }));
  }

  /** How many builds of a team are being made. */
  async countUnderWay(teamId: string): Promise<number> {
    const { count } = await this.#db
      .selectFrom('templateBuilds')
      .innerJoin('buildRequests', 'buildRequests.buildId', 'templateBuilds.id')
      .select(({ fn }) => fn.countAll<number>().as('count'))
      .where('buildRequests.teamId', '=', teamId)
      .where('status', '=', 'building')
      .executeTakeFirstOrThrow();
    return Number(count);
  }

  async appendLogs(rows: BuildLogRow[]): Promise<void> {
    if (rows.length > 0) await this.#db.insertInto('buildLogs').values(rows).execute();
  }

  /** Lines in their order, from the `offset`-th that counts. */
  logs(buildId: string, offset: number, { leastLevel, limit }: LogQuery): Promise<BuildLogRow[]> {
    return this.#db
      .selectFrom('buildLogs')
      .selectAll()
      .where('buildId', '=', buildId)
      .where('level', '>=', leastLevel)
      .orderBy('position')
      .limit(limit)
      .offset(offset)
      .execute();
  }

  /** Lines by time: forward from the cursor, or backward from it; all of them without one. */
  async logsAround(
    buildId: string,
    cursorMs: number | undefined,
    direction: 'forward' | 'backward',
    { leastLevel, limit }: LogQuery,
  ): Promise<BuildLogRow[]> {
    let query = this.#db
      .selectFrom('buildLogs')
      .selectAll()
      .where('buildId', '=', buildId)
      .where('level', '>=', leastLevel);
    if (cursorMs !== undefined) query = query.where('createdAt', direction === 'forward' ? '>=' : '<=', cursorMs);
    return query
      .orderBy('position', direction === 'forward' ? 'asc' : 'desc')
      .limit(limit)
      .execute();
  }

  /** Lines of one step from a level up, the newest `limit` of them in their order. */
  async stepLogs(buildId: string, step: string, { leastLevel, limit }: LogQuery): Promise<BuildLogRow[]> {
    const found = await this.#db
      .selectFrom('buildLogs')
      .selectAll()
      .where('buildId', '=', buildId)
      .where('step', '=', step)
      .where('level', '>=', leastLevel)
      .orderBy('position', 'desc')
      .limit(limit)
      .execute();
    return found.reverse();
  }

  async setPublic(templateId: string, isPublic: boolean, now: number): Promise<void> {
    await this.#db
      .updateTable('templates')
      .set({ public: isPublic ? 1 : 0, updatedAt: now })
      .where('id', '=', templateId)
      .execute();
  }

  /** Takes tags away; those that do not exist are passed over. */
  async removeTags(templateId: string, tags: string[]): Promise<void> {
    await this.#db.deleteFrom('templateTags').where('templateId', '=', templateId).where('tag', 'in', tags).execute();
  }
}

/** The template that the name means for its team, made where there is none. */
async function ensureTemplate(
  transaction: Transaction<Schema>,
  { team, name, userId, now }: NewBuild,
): Promise<TemplateRow> {
  const known = name === undefined ? undefined : await findOwn(transaction, team, name.name);
  if (known !== undefined) {
    // A name that only snapshots had is a template's from now on, and listed.
    if (known.kind === 'snapshot')
      await transaction.updateTable('templates').set({ kind: 'template' }).where('id', '=', known.id).execute();
    return { ...known, kind: 'template', buildCount: known.buildCount + 1, updatedAt: now };
  }
  const template: TemplateRow = {
    id: newTemplateId(),
    kind: 'template',
    teamId: team.id,
    public: false,
    createdAt: now,
    updatedAt: now,
    createdBy: userId ?? (await firstMember(transaction, team.id)),
    lastSpawnedAt: null,
    spawnCount: 0,
    buildCount: 0,
  };
  await queries.insertTemplate(transaction, template);
  if (name === undefined) return { ...template, buildCount: 1 };
  const alias = { namespace: team.slug, alias: name.name, templateId: template.id, createdAt: now };
  if (await queries.insertAlias(transaction, alias)) return { ...template, buildCount: 1 };
  // Another request took the name at the same time: the build goes into its template.
  await transaction.deleteFrom('templates').where('id', '=', template.id).execute();
  const theirs = await queries.findByAlias(transaction, [team.slug], name.name);
  if (theirs === undefined) throw new SandbarError('conflict', `template name '${name.name}' was taken and is gone`);
  return { ...theirs, buildCount: theirs.buildCount + 1, updatedAt: now };
}

/** A template of the team by its name or its ID. */
async function findOwn(
  transaction: Transaction<Schema>,
  team: NewBuild['team'],
  name: string,
): Promise<TemplateRow | undefined> {
  const named = await queries.findByAlias(transaction, [team.slug], name);
  if (named !== undefined) return named;
  const byId = await queries.findById(transaction, name);
  return byId?.teamId === team.id ? byId : undefined;
}

async function firstMember(transaction: Transaction<Schema>, teamId: string): Promise<string | null> {
  const member = await transaction
    .selectFrom('teamMembers')
    .innerJoin('users', 'users.id', 'teamMembers.userId')
    .select('userId')
    .where('teamId', '=', teamId)
    .orderBy('users.createdAt')
    .limit(1)
    .executeTakeFirst();
  return member?.userId ?? null;
}
