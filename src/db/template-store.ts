import { isDeepStrictEqual } from 'node:util';
import type { Transaction } from 'kysely';
import { SandbarError } from '../core/errors.ts';
import { newTemplateId, newUuid } from '../core/ids.ts';
import type { TeamRef } from '../sandboxes/contract.ts';
import type { Database } from './database.ts';
import {
  type Schema,
  type TemplateBuildRow,
  type TemplateRow,
  type TemplateTagRow,
  templateBuildColumns,
  templateColumns,
} from './schema.ts';
import { statement, type Value } from './statement.ts';
import type { Page, TimeCursor } from './template-queries.ts';
import * as queries from './template-queries.ts';
import { DEFAULT_TAG, parseTemplateReference, referencePath } from './template-reference.ts';

export type { Page, TimeCursor } from './template-queries.ts';

/** A template and the build that a reference to it means. */
export interface ResolvedTemplate {
  template: TemplateRow;
  build: TemplateBuildRow;
  /** Bare names, oldest first. */
  aliases: string[];
}

/** A template with all that a list shows of it. */
export interface TemplateSummary {
  template: TemplateRow;
  /** Bare names, oldest first. */
  aliases: string[];
  /** `namespace/alias`, or the bare alias of a global name. */
  names: string[];
  /** The build tagged `default`, else the newest; undefined while there is none. */
  build: TemplateBuildRow | undefined;
  createdBy: { id: string; email: string } | undefined;
}

/** What a build is made of, as far as a sandbox notices. */
export type BuildContent = Omit<
  TemplateBuildRow,
  'id' | 'templateId' | 'status' | 'reason' | 'sourceSandboxId' | 'createdAt' | 'updatedAt' | 'finishedAt'
>;

/** Namespace of names that every team may use bare. */
export const GLOBAL_NAMESPACE = '';

const countSpawn = statement((db, value: Value<{ templateId: string; now: number }>) =>
  db
    .updateTable('templates')
    .set((row) => ({ spawnCount: row('spawnCount', '+', 1), lastSpawnedAt: value('now') }))
    .where('id', '=', value('templateId')),
);

export class TemplateStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * The build a sandbox is made from when the team names `reference`. A private template of another team is not_found, like
   * one that does not exist.
   */
  async resolve(reference: string, team: TeamRef): Promise<ResolvedTemplate> {
    const parsed = parseTemplateReference(reference);
    const template = await this.find(reference, team);
    if (template === undefined || !mayUse(team.id, template))
      throw new SandbarError('not_found', `template '${referencePath(parsed)}' not found`);
    const tag = parsed.tag ?? DEFAULT_TAG;
    const build = await queries.findTagged(this.#db, template.id, tag);
    if (build === undefined)
      throw new SandbarError('not_found', `tag '${tag}' does not exist for template '${referencePath(parsed)}'`);
    return { template, build, aliases: await queries.namesOf(this.#db, template.id) };
  }

  /**
   * The template a reference means for a team, whoever owns it: with a namespace only there; bare, the team's own names, then
   * the global ones, then template IDs.
   */
  async find(reference: string, team: TeamRef): Promise<TemplateRow | undefined> {
    const { namespace, name } = parseTemplateReference(reference);
    if (namespace !== undefined) return queries.findByAlias(this.#db, [namespace], name);
    return (await queries.findByAlias(this.#db, [team.slug, GLOBAL_NAMESPACE], name)) ?? this.get(name);
  }

  /** The present build of one of the service's own templates. */
  async findBuiltin(alias: string): Promise<(TemplateBuildRow & { buildId: string }) | undefined> {
    const template = await queries.findByAlias(this.#db, [GLOBAL_NAMESPACE], alias);
    const build = template && (await queries.findTagged(this.#db, template.id, DEFAULT_TAG));
    return build && { ...build, buildId: build.id };
  }

  async get(id: string): Promise<TemplateRow | undefined> {
    const stored = await this.#db.selectFrom('templates').selectAll().where('id', '=', id).executeTakeFirst();
    return stored && templateColumns.decode(stored);
  }

  async getBuild(id: string): Promise<TemplateBuildRow | undefined> {
    const stored = await this.#db.selectFrom('templateBuilds').selectAll().where('id', '=', id).executeTakeFirst();
    return stored && templateBuildColumns.decode(stored);
  }

  /** The team's templates and those that belong to everyone, newest first. Snapshots have a list of their own. */
  async list(teamId: string, limit: number, cursor: TimeCursor | null = null): Promise<Page<TemplateSummary>> {
    const found = await this.#db
      .selectFrom('templates')
      .selectAll()
      .where(({ eb, or }) => or([eb('teamId', '=', teamId), eb('teamId', 'is', null)]))
      .where('kind', '=', 'template')
      .where(queries.after(cursor))
      .orderBy('createdAt', 'desc')
      .orderBy('id')
      .limit(limit + 1)
      .execute();
    const { items, next } = queries.pageOf(found, limit);
    return { items: await this.#summaries(items.map((stored) => templateColumns.decode(stored))), next };
  }

  async summary(template: TemplateRow): Promise<TemplateSummary> {
    const [summary] = await this.#summaries([template]);
    return summary ?? { template, aliases: [], names: [], build: undefined, createdBy: undefined };
  }

  /** Builds of a template, newest first. */
  async listBuilds(
    templateId: string,
    limit: number,
    cursor: TimeCursor | null = null,
  ): Promise<Page<TemplateBuildRow>> {
    const found = await this.#db
      .selectFrom('templateBuilds')
      .selectAll()
      .where('templateId', '=', templateId)
      .where(queries.after(cursor))
      .orderBy('createdAt', 'desc')
      .orderBy('id')
      .limit(limit + 1)
      .execute();
    const { items, next } = queries.pageOf(found, limit);
    return { items: items.map((stored) => templateBuildColumns.decode(stored)), next };
  }

  /** Every tag of a template, the last set first. */
  listTags(templateId: string): Promise<TemplateTagRow[]> {
    return this.#db
      .selectFrom('templateTags')
      .selectAll()
      .where('templateId', '=', templateId)
      .orderBy('createdAt', 'desc')
      .orderBy('tag')
      .execute();
  }

  /** Counts one more sandbox made from the template. */
  async bumpSpawnCount(templateId: string, now: number): Promise<void> {
    await countSpawn(this.#db, { templateId, now });
  }

  insert(template: TemplateRow): Promise<void> {
    return queries.insertTemplate(this.#db, template);
  }

  /** False when the name is taken. */
  addAlias(namespace: string, alias: string, templateId: string, now: number): Promise<boolean> {
    return queries.insertAlias(this.#db, { namespace, alias, templateId, createdAt: now });
  }

  /** Inserts a build and counts it in its template. */
  insertBuild(build: TemplateBuildRow): Promise<void> {
    return this.#db.transaction().execute((transaction) => queries.insertBuild(transaction, build));
  }

  /** Points a tag at a build, whether or not it pointed at another before. */
  setTag(tag: TemplateTagRow): Promise<void> {
    return queries.setTag(this.#db, tag);
  }

  /**
   * Makes sure that a template of the service itself exists under a global name and that its `default` build has this
   * content. Safe to repeat, and when two replicas do it at once; a new build is made only when the content differs.
   */
  upsertBuiltin(alias: string, content: BuildContent, now: number): Promise<ResolvedTemplate> {
    return this.#db.transaction().execute(async (transaction) => {
      const template = await ensureBuiltin(transaction, alias, now);
      const aliases = (await queries.aliasesOf(transaction, [template.id])).map((name) => name.alias);
      const current = await queries.findTagged(transaction, template.id, DEFAULT_TAG);
      if (current !== undefined && hasContent(current, content)) return { template, build: current, aliases };
      const build: TemplateBuildRow = {
        ...content,
        id: newUuid(),
        templateId: template.id,
        status: 'ready',
        reason: null,
        sourceSandboxId: null,
        createdAt: now,
        updatedAt: now,
        finishedAt: now,
      };
      await queries.insertBuild(transaction, build);
      await queries.setTag(transaction, {
        templateId: template.id,
        tag: DEFAULT_TAG,
        buildId: build.id,
        createdAt: now,
      });
      return { template: { ...template, buildCount: template.buildCount + 1, updatedAt: now }, build, aliases };
    });
  }

  async #summaries(templates: TemplateRow[]): Promise<TemplateSummary[]> {
    if (templates.length === 0) return [];
    const ids = templates.map(({ id }) => id);
    const aliases = await queries.aliasesOf(this.#db, ids);
    const builds = await queries.shownBuilds(this.#db, ids);
    const creators = await queries.creatorsOf(this.#db, templates);
    return templates.map((template) => {
      const own = aliases.filter(({ templateId }) => templateId === template.id);
      return {
        template,
        aliases: own.map(({ alias }) => alias),
        names: own.map(({ namespace, alias }) => (namespace === GLOBAL_NAMESPACE ? alias : `${namespace}/${alias}`)),
        build: builds.get(template.id),
        createdBy: template.createdBy === null ? undefined : creators.get(template.createdBy),
      };
    });
  }
}

/** Whether a team may make sandboxes from a template. */
export function mayUse(teamId: string, template: TemplateRow): boolean {
  return template.public || template.teamId === teamId;
}

async function ensureBuiltin(transaction: Transaction<Schema>, alias: string, now: number): Promise<TemplateRow> {
  const known = await queries.findByAlias(transaction, [GLOBAL_NAMESPACE], alias);
  if (known !== undefined) return lockTemplate(transaction, known);
  const template: TemplateRow = {
    id: newTemplateId(),
    kind: 'template',
    teamId: null,
    public: true,
    createdAt: now,
    updatedAt: now,
    createdBy: null,
    lastSpawnedAt: null,
    spawnCount: 0,
    buildCount: 0,
  };
  await queries.insertTemplate(transaction, template);
  const first = await queries.insertAlias(transaction, {
    namespace: GLOBAL_NAMESPACE,
    alias,
    templateId: template.id,
    createdAt: now,
  });
  if (first) return template;
  // Another replica was faster: its row, which the insert waited for, is the one.
  await transaction.deleteFrom('templates').where('id', '=', template.id).execute();
  const theirs = await queries.findByAlias(transaction, [GLOBAL_NAMESPACE], alias);
  if (theirs === undefined) throw new SandbarError('internal', `template name '${alias}' was taken and is gone`);
  return lockTemplate(transaction, theirs);
}

/** Holds the template until the transaction ends, so that two replicas do not both add the same build. */
async function lockTemplate(transaction: Transaction<Schema>, template: TemplateRow): Promise<TemplateRow> {
  await transaction
    .updateTable('templates')
    .set((row) => ({ updatedAt: row.ref('updatedAt') }))
    .where('id', '=', template.id)
    .execute();
  return template;
}

function hasContent(build: TemplateBuildRow, content: BuildContent): boolean {
  const { id, templateId, status, reason, sourceSandboxId, createdAt, updatedAt, finishedAt, ...own } = build;
  return isDeepStrictEqual({ ...own }, { ...content });
}
