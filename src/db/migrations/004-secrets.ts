import type { Kysely } from 'kysely';

/** Secrets of teams: what is told of them, and their sealed values. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('secrets')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('team_id', 'text', (column) => column.notNull().references('teams.id').onDelete('cascade'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('version', 'integer', (column) => column.notNull())
    .addColumn('sealed', 'text', (column) => column.notNull())
    .addColumn('metadata', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('updated_at', 'bigint', (column) => column.notNull())
    .addUniqueConstraint('secrets_by_name', ['team_id', 'name'])
    .execute();
  await db.schema
    .createIndex('secrets_by_team_and_time')
    .on('secrets')
    .columns(['team_id', 'created_at', 'id'])
    .execute();
}
