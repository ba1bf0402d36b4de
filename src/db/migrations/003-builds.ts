import type { Kysely } from 'kysely';

/** What builds of templates need beside their rows: the tags they will get, their logs, and the layers that steps left. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('build_requests')
    .addColumn('build_id', 'text', (column) => column.primaryKey().references('template_builds.id').onDelete('cascade'))
    .addColumn('team_id', 'text', (column) => column.notNull())
    .addColumn('tags', 'text', (column) => column.notNull())
    .execute();
  await db.schema.createIndex('build_requests_by_team').on('build_requests').column('team_id').execute();

  await db.schema
    .createTable('build_logs')
    .addColumn('build_id', 'text', (column) => column.notNull().references('template_builds.id').onDelete('cascade'))
    .addColumn('position', 'integer', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('level', 'integer', (column) => column.notNull())
    .addColumn('step', 'text')
    .addColumn('message', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('build_logs_pk', ['build_id', 'position'])
    .execute();

  await db.schema
    .createTable('build_cache')
    .addColumn('key', 'text', (column) => column.primaryKey())
    .addColumn('layers', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('used_at', 'bigint', (column) => column.notNull())
    .execute();
  await db.schema.createIndex('build_cache_by_use').on('build_cache').column('used_at').execute();
  // Which builds are under way, at every start and request.
  await db.schema
    .createIndex('template_builds_by_status')
    .on('template_builds')
    .columns(['status', 'updated_at'])
    .execute();
}
