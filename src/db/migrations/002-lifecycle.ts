import type { Kysely, Transaction } from 'kysely';

type Schema = Kysely<unknown> | Transaction<unknown>;

/** Snapshots, what happened to sandboxes, their logs, and what they and their teams used. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await snapshots(db);
  await events(db);
  await logs(db);
  await metrics(db);
}

async function snapshots(db: Schema): Promise<void> {
  await db.schema
    .alterTable('sandboxes')
    .addColumn('memory_kept', 'integer', (column) => column.notNull().defaultTo(1))
    .execute();
  // Whether a template may be deleted.
  await db.schema.createIndex('sandboxes_by_template').on('sandboxes').column('template_id').execute();
  await db.schema.createIndex('sandboxes_by_build').on('sandboxes').column('build_id').execute();
  await db.schema
    .alterTable('templates')
    .addColumn('kind', 'text', (column) => column.notNull().defaultTo('template'))
    .execute();
  await db.schema.alterTable('template_builds').addColumn('source_sandbox_id', 'text').execute();
}

async function events(db: Schema): Promise<void> {
  await db.schema
    .createTable('sandbox_events')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('team_id', 'text', (column) => column.notNull())
    .addColumn('sandbox_id', 'text', (column) => column.notNull())
    .addColumn('template_id', 'text', (column) => column.notNull())
    .addColumn('build_id', 'text', (column) => column.notNull())
    .addColumn('execution_id', 'text', (column) => column.notNull())
    .addColumn('type', 'text', (column) => column.notNull())
    .addColumn('data', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute();
  await db.schema
    .createIndex('sandbox_events_by_team')
    .on('sandbox_events')
    .columns(['team_id', 'created_at', 'id'])
    .execute();
  await db.schema
    .createIndex('sandbox_events_by_sandbox')
    .on('sandbox_events')
    .columns(['sandbox_id', 'created_at', 'id'])
    .execute();
  await db.schema.createIndex('sandbox_events_by_time').on('sandbox_events').column('created_at').execute();
}

async function logs(db: Schema): Promise<void> {
  await db.schema
    .createTable('sandbox_logs')
    .addColumn('sandbox_id', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('team_id', 'text', (column) => column.notNull())
    .addColumn('level', 'integer', (column) => column.notNull())
    .addColumn('message', 'text', (column) => column.notNull())
    .addColumn('fields', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('sandbox_logs_pk', ['sandbox_id', 'created_at'])
    .execute();
  await db.schema.createIndex('sandbox_logs_by_time').on('sandbox_logs').column('created_at').execute();
}

async function metrics(db: Schema): Promise<void> {
  // One row a slot of a ring, so that a subject has a fixed number of them however long it lives.
  await db.schema
    .createTable('metrics')
    .addColumn('subject', 'text', (column) => column.notNull())
    .addColumn('step_seconds', 'integer', (column) => column.notNull())
    .addColumn('slot', 'integer', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('sample', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('metrics_pk', ['subject', 'step_seconds', 'slot'])
    .execute();
  await db.schema.createIndex('metrics_by_time').on('metrics').column('created_at').execute();
}
