import { type RawBuilder, type SqlBool, sql } from 'kysely';
import {
  type TemplateAliasRow,
  type TemplateBuildRow,
  type TemplateRow,
  type TemplateTagRow,
  templateBuildColumns,
  templateColumns,
  type UserRow,
} from './schema.ts';
import { type Executor, statement, type Value } from './statement.ts';
import { DEFAULT_TAG } from './template-reference.ts';

// Single queries on the template tables, for use inside or outside a transaction.

/** Position in a list ordered by time, newest first: the last row already given. */
export interface TimeCursor {
  createdAt: number;
  id: string;
}

export interface Page<Item> {
  items: Item[];
  next: TimeCursor | null;
}

/** Rows behind the cursor in a list ordered by `created_at desc, id`. */
export function after(cursor: TimeCursor | null): RawBuilder<SqlBool> {
  if (cursor === null) return sql`1 = 1`;
  const { createdAt, id } = cursor;
  return sql`(created_at < ${createdAt} or (created_at = ${createdAt} and id > ${id}))`;
}

/** A page out of rows of which one more than `limit` was asked for. */
export function pageOf<Item extends TimeCursor>(found: Item[], limit: number): Page<Item> {
  const items = found.slice(0, limit);
  const last = items.at(-1);
  const more = found.length > limit && last !== undefined;
  return { items, next: more ? { createdAt: last.createdAt, id: last.id } : null };
}

/** The template of that name in the first of the namespaces that has it. */
export async function findByAlias(
  db: Executor,
  [first, second = first]: readonly [first: string, second?: string],
  alias: string,
): Promise<TemplateRow | undefined> {
  const { rows } = await selectByAlias(db, { first, second, alias });
  const found = rows.find(({ namespace }) => namespace === first) ?? rows[0];
  if (found === undefined) return undefined;
  const { namespace: _, ...stored } = found;
  return templateColumns.decode(stored);
}

const selectByAlias = statement((db, value: Value<{ first: string; second: string; alias: string }>) =>
  db
    .selectFrom('templateAliases')
    .innerJoin('templates', 'templates.id', 'templateAliases.templateId')
    .selectAll('templates')
    .select('namespace')
    .where('namespace', 'in', [value('first'), value('second')])
    .where('alias', '=', value('alias')),
);

export async function findById(db: Executor, id: string): Promise<TemplateRow | undefined> {
  const stored = await db.selectFrom('templates').selectAll().where('id', '=', id).executeTakeFirst();
  return stored && templateColumns.decode(stored);
}

export async function findTagged(db: Executor, templateId: string, tag: string): Promise<TemplateBuildRow | undefined> {
  const [stored] = (await selectTagged(db, { templateId, tag })).rows;
  return stored && templateBuildColumns.decode(stored);
}

const selectTagged = statement((db, value: Value<{ templateId: string; tag: string }>) =>
  db
    .selectFrom('templateTags')
    .innerJoin('templateBuilds', 'templateBuilds.id', 'templateTags.buildId')
    .selectAll('templateBuilds')
    .where('templateTags.templateId', '=', value('templateId'))
    .where('tag', '=', value('tag')),
);

/** Bare names of a template, oldest first. */
export async function namesOf(db: Executor, templateId: string): Promise<string[]> {
  return (await selectNames(db, { templateId })).rows.map(({ alias }) => alias);
}

const selectNames = statement((db, value: Value<{ templateId: string }>) =>
  db
    .selectFrom('templateAliases')
    .select('alias')
    .where('templateId', '=', value('templateId'))
    .orderBy('createdAt')
    .orderBy('alias'),
);

/** Names of the templates, each template's oldest first. */
export function aliasesOf(db: Executor, templateIds: string[]): Promise<TemplateAliasRow[]> {
  return db
    .selectFrom('templateAliases')
    .selectAll()
    .where('templateId', 'in', templateIds)
    .orderBy('createdAt')
    .orderBy('alias')
    .execute();
}

/** The build a list shows of each template: the one tagged `default`, else the newest that is ready, else the newest. */
export async function shownBuilds(db: Executor, templateIds: string[]): Promise<Map<string, TemplateBuildRow>> {
  const tagged = await db
    .selectFrom('templateTags')
    .innerJoin('templateBuilds', 'templateBuilds.id', 'templateTags.buildId')
    .selectAll('templateBuilds')
    .where('templateTags.templateId', 'in', templateIds)
    .where('tag', '=', DEFAULT_TAG)
    .execute();
  const builds = new Map(tagged.map((stored) => [stored.templateId, templateBuildColumns.decode(stored)]));
  for (const templateId of templateIds.filter((id) => !builds.has(id))) {
    const newest = await db
      .selectFrom('templateBuilds')
      .selectAll()
      .where('templateId', '=', templateId)
      .orderBy(sql`case status when 'ready' then 0 else 1 end`)
      .orderBy('createdAt', 'desc')
      .limit(1)
      .executeTakeFirst();
    if (newest !== undefined) builds.set(templateId, templateBuildColumns.decode(newest));
  }
  return builds;
}

export async function creatorsOf(db: Executor, templates: TemplateRow[]): Promise<Map<string, UserRow>> {
  const ids = templates.flatMap(({ createdBy }) => createdBy ?? []);
  if (ids.length === 0) return new Map();
  const users = await db.selectFrom('users').selectAll().where('id', 'in', ids).execute();
  return new Map(users.map((user) => [user.id, user]));
}

export async function insertTemplate(db: Executor, template: TemplateRow): Promise<void> {
  await db.insertInto('templates').values(templateColumns.encode(template)).execute();
}

/** False when the name is taken. */
export async function insertAlias(db: Executor, alias: TemplateAliasRow): Promise<boolean> {
  const result = await db
    .insertInto('templateAliases')
    .values(alias)
    .onConflict((conflict) => conflict.columns(['namespace', 'alias']).doNothing())
    .executeTakeFirst();
  return (result.numInsertedOrUpdatedRows ?? 0n) > 0n;
}

/** Inserts a build and counts it in its template. */
export async function insertBuild(db: Executor, build: TemplateBuildRow): Promise<void> {
  await db.insertInto('templateBuilds').values(templateBuildColumns.encode(build)).execute();
  await db
    .updateTable('templates')
    .set((row) => ({ buildCount: row('buildCount', '+', 1), updatedAt: build.createdAt }))
    .where('id', '=', build.templateId)
    .execute();
}

/** Points a tag at a build, whether or not it pointed at another before. */
export async function setTag(db: Executor, tag: TemplateTagRow): Promise<void> {
  await db
    .insertInto('templateTags')
    .values(tag)
    .onConflict((conflict) =>
      conflict.columns(['templateId', 'tag']).doUpdateSet({ buildId: tag.buildId, createdAt: tag.createdAt }),
    )
    .execute();
}
