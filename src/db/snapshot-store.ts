import { sql, type Transaction } from 'kysely';
import { SandbarError } from '../core/errors.ts';
import { newTemplateId, newUuid } from '../core/ids.ts';
import type { Database } from './database.ts';
import type { Schema, TeamRow, TemplateBuildRow, TemplateRow } from './schema.ts';
import * as queries from './template-queries.ts';
import { DEFAULT_TAG, type TemplateReference } from './template-reference.ts';
import type { BuildContent } from './template-store.ts';

/** A snapshot as it is named to users: a tag of a template that points at a build taken from a sandbox. */
export interface SnapshotRow {
  templateId: string;
  tag: string;
  /** `namespace/alias` of the template, oldest first. */
  names: string[];
  createdAt: number;
}

export interface NewSnapshot {
  team: Pick<TeamRow, 'id' | 'slug'>;
  /** undefined: a template of its own without a name. */
  name: TemplateReference | undefined;
  sourceSandboxId: string;
  content: BuildContent;
  now: number;
}

export interface SnapshotQuery {
  sandboxId: string | null;
  /** Template it must be of; null: any. */
  templateId: string | null;
  tag: string | null;
  limit: number;
  cursor: SnapshotCursor | null;
}

/** Position in the list: the last row already given. */
export interface SnapshotCursor {
  createdAt: number;
  templateId: string;
  tag: string;
}

/** Snapshots of sandboxes. They are builds of templates like others, but came from a sandbox instead of from steps. */
export class SnapshotStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Writes a snapshot whose image exists: into the team's template of that name, or into a new one. */
  insert({ team, name, sourceSandboxId, content, now }: NewSnapshot): Promise<SnapshotRow> {
    return this.#db.transaction().execute(async (transaction) => {
      const templateId = await ensureTemplate(transaction, team, name?.name, now);
      const build: TemplateBuildRow = {
        ...content,
        id: newUuid(),
        templateId,
        status: 'ready',
        reason: null,
        sourceSandboxId,
        createdAt: now,
        updatedAt: now,
        finishedAt: now,
      };
      const tag = name?.tag ?? DEFAULT_TAG;
      await queries.insertBuild(transaction, build);
      await queries.setTag(transaction, { templateId, tag, buildId: build.id, createdAt: now });
      const aliases = await queries.aliasesOf(transaction, [templateId]);
      return { templateId, tag, names: aliases.map(fullName), createdAt: now };
    });
  }

  /** A team's snapshots, newest first. */
  async list(teamId: string, query: SnapshotQuery): Promise<{ items: SnapshotRow[]; next: SnapshotCursor | null }> {
    let page = this.#db
      .selectFrom('templateTags')
      .innerJoin('templateBuilds', 'templateBuilds.id', 'templateTags.buildId')
      .innerJoin('templates', 'templates.id', 'templateTags.templateId')
      .select(['templateTags.templateId', 'templateTags.tag', 'templateTags.createdAt'])
      .where('templates.teamId', '=', teamId)
      .where('templateBuilds.sourceSandboxId', 'is not', null);
    if (query.sandboxId !== null) page = page.where('templateBuilds.sourceSandboxId', '=', query.sandboxId);
    if (query.templateId !== null) page = page.where('templateTags.templateId', '=', query.templateId);
    if (query.tag !== null) page = page.where('templateTags.tag', '=', query.tag);
    if (query.cursor !== null) {
      const { createdAt, templateId, tag } = query.cursor;
      page = page.where(
        sql<boolean>`(template_tags.created_at < ${createdAt} or (template_tags.created_at = ${createdAt} and
          (template_tags.template_id > ${templateId} or (template_tags.template_id = ${templateId} and template_tags.tag > ${tag}))))`,
      );
    }
    const found = await page
      .orderBy('templateTags.createdAt', 'desc')
      .orderBy('templateTags.templateId')
      .orderBy('templateTags.tag')
      .limit(query.limit + 1)
      .execute();
    const shown = found.slice(0, query.limit);
    const aliases = shown.length === 0 ? [] : await queries.aliasesOf(this.#db, [...new Set(shown.map(templateIdOf))]);
    const items = shown.map((row) => ({
      ...row,
      names: aliases.filter(({ templateId }) => templateId === row.templateId).map(fullName),
    }));
    return { items, next: found.length > query.limit ? (shown.at(-1) ?? null) : null };
  }

  /** Images that builds refer to. */
  async imagesInUse(): Promise<Set<string>> {
    const builds = await this.#db
      .selectFrom('templateBuilds')
      .select('snapshotId')
      .where('snapshotId', 'is not', null)
      .execute();
    return new Set(builds.flatMap(({ snapshotId }) => snapshotId ?? []));
  }

  /**
   * Forgets snapshots that no tag points at any more, so that no sandbox can be made from them, and resolves to their images. The row stays
   * while a sandbox exists that was made from it.
   */
  forgetUntagged(): Promise<string[]> {
    return this.#db.transaction().execute(async (transaction) => {
      const untagged = await transaction
        .selectFrom('templateBuilds')
        .select(['id', 'snapshotId'])
        .where('sourceSandboxId', 'is not', null)
        .where('snapshotId', 'is not', null)
        .where('id', 'not in', (nested) => nested.selectFrom('templateTags').select('buildId'))
        .where('id', 'not in', (nested) =>
          nested.selectFrom('sandboxes').select('buildId').where('state', '=', 'starting'),
        )
        .execute();
      if (untagged.length === 0) return [];
      const ids = untagged.map(({ id }) => id);
      await transaction.updateTable('templateBuilds').set({ snapshotId: null }).where('id', 'in', ids).execute();
      await transaction
        .deleteFrom('templateBuilds')
        .where('id', 'in', ids)
        .where('id', 'not in', (nested) => nested.selectFrom('sandboxes').select('buildId'))
        .execute();
      return untagged.flatMap(({ snapshotId }) => snapshotId ?? []);
    });
  }

  /** Deletes a template with all its builds, unless sandboxes made from it exist. Resolves to the images that were theirs. */
  deleteTemplate(templateId: string): Promise<{ images: string[] } | { sandboxes: number }> {
    return this.#db.transaction().execute(async (transaction) => {
      const { count } = await transaction
        .selectFrom('sandboxes')
        .select(({ fn }) => fn.countAll<number>().as('count'))
        .where('templateId', '=', templateId)
        .executeTakeFirstOrThrow();
      if (Number(count) > 0) return { sandboxes: Number(count) };
      const builds = await transaction
        .selectFrom('templateBuilds')
        .select('snapshotId')
        .where('templateId', '=', templateId)
        .execute();
      await transaction.deleteFrom('templates').where('id', '=', templateId).execute();
      return { images: builds.flatMap(({ snapshotId }) => snapshotId ?? []) };
    });
  }
}

/** The team's template of that name, made where there is none. */
async function ensureTemplate(
  transaction: Transaction<Schema>,
  team: NewSnapshot['team'],
  alias: string | undefined,
  now: number,
): Promise<string> {
  const known = alias === undefined ? undefined : await queries.findByAlias(transaction, [team.slug], alias);
  if (known !== undefined) return known.id;
  const id = newTemplateId();
  await queries.insertTemplate(transaction, snapshotTemplate(id, team.id, now));
  if (alias === undefined) return id;
  const first = await queries.insertAlias(transaction, { namespace: team.slug, alias, templateId: id, createdAt: now });
  if (first) return id;
  // Another replica took the name at the same time: the snapshot goes into its template.
  await transaction.deleteFrom('templates').where('id', '=', id).execute();
  const theirs = await queries.findByAlias(transaction, [team.slug], alias);
  if (theirs === undefined) throw new SandbarError('conflict', `template name '${alias}' was taken and is gone`);
  return theirs.id;
}

function snapshotTemplate(id: string, teamId: string, now: number): TemplateRow {
  return {
    id,
    kind: 'snapshot',
    teamId,
    public: false,
    createdAt: now,
    updatedAt: now,
    createdBy: null,
    lastSpawnedAt: null,
    spawnCount: 0,
    buildCount: 0,
  };
}

function fullName({ namespace, alias }: { namespace: string; alias: string }): string {
  return namespace === '' ? alias : `${namespace}/${alias}`;
}

function templateIdOf({ templateId }: { templateId: string }): string {
  return templateId;
}
