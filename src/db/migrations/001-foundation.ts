import type { Kysely, Transaction } from 'kysely';

/** Times are milliseconds since 1970 (bigint), flags 0 or 1 (integer), structures JSON (text): the same on both dialects. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await teams(db);
  await sandboxes(db);
  await templates(db);
}

type Schema = Kysely<unknown> | Transaction<unknown>;

async function teams(db: Schema): Promise<void> {
  await db.schema
    .createTable('teams')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('slug', 'text', (column) => column.notNull().unique())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute();

  await db.schema
    .createTable('users')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('email', 'text', (column) => column.notNull().unique())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute();

  await db.schema
    .createTable('team_members')
    .addColumn('team_id', 'text', (column) => column.notNull().references('teams.id').onDelete('cascade'))
    .addColumn('user_id', 'text', (column) => column.notNull().references('users.id').onDelete('cascade'))
    .addColumn('is_default', 'integer', (column) => column.notNull())
    .addPrimaryKeyConstraint('team_members_pk', ['user_id', 'team_id'])
    .execute();

  await db.schema
    .createTable('api_keys')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('team_id', 'text', (column) => column.notNull().references('teams.id').onDelete('cascade'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('hash', 'text', (column) => column.notNull().unique())
    .addColumn('mask', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('created_by', 'text', (column) => column.references('users.id').onDelete('set null'))
    .addColumn('last_used', 'bigint')
    .execute();
  await db.schema.createIndex('api_keys_by_team').on('api_keys').columns(['team_id', 'created_at']).execute();

  await db.schema
    .createTable('access_tokens')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('user_id', 'text', (column) => column.notNull().references('users.id').onDelete('cascade'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('hash', 'text', (column) => column.notNull().unique())
    .addColumn('mask', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute();
}

async function sandboxes(db: Schema): Promise<void> {
  await db.schema
    .createTable('sandboxes')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('team_id', 'text', (column) => column.notNull())
    .addColumn('template_id', 'text', (column) => column.notNull())
    .addColumn('build_id', 'text', (column) => column.notNull())
    .addColumn('alias', 'text')
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('started_at', 'bigint', (column) => column.notNull())
    .addColumn('end_at', 'bigint', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('cpu_count', 'integer', (column) => column.notNull())
    .addColumn('memory_mb', 'integer', (column) => column.notNull())
    .addColumn('disk_size_mb', 'integer', (column) => column.notNull())
    .addColumn('envd_version', 'text', (column) => column.notNull())
    .addColumn('runtime', 'text', (column) => column.notNull())
    .addColumn('secure', 'integer', (column) => column.notNull())
    .addColumn('envd_access_token', 'text')
    .addColumn('earlier_tokens', 'text', (column) => column.notNull())
    .addColumn('traffic_access_token', 'text')
    .addColumn('metadata', 'text', (column) => column.notNull())
    .addColumn('env_vars', 'text', (column) => column.notNull())
    .addColumn('timeout_seconds', 'bigint', (column) => column.notNull())
    .addColumn('auto_pause', 'integer', (column) => column.notNull())
    .addColumn('auto_pause_memory', 'integer', (column) => column.notNull())
    .addColumn('auto_resume', 'integer', (column) => column.notNull())
    .addColumn('allow_internet_access', 'integer')
    .addColumn('network', 'text', (column) => column.notNull())
    .addColumn('volume_mounts', 'text', (column) => column.notNull())
    .addColumn('snapshot_id', 'text')
    .execute();
  // A page of a list, in its order.
  await db.schema
    .createIndex('sandboxes_by_team_and_start')
    .on('sandboxes')
    .columns(['team_id', 'started_at', 'id'])
    .execute();
  // The count against a team's limit.
  await db.schema.createIndex('sandboxes_by_team_and_state').on('sandboxes').columns(['team_id', 'state']).execute();
  // The next deadline.
  await db.schema.createIndex('sandboxes_by_state_and_end').on('sandboxes').columns(['state', 'end_at']).execute();

  await db.schema
    .createTable('sandbox_metadata')
    .addColumn('pair_hash', 'text', (column) => column.notNull())
    .addColumn('sandbox_id', 'text', (column) => column.notNull().references('sandboxes.id').onDelete('cascade'))
    .addPrimaryKeyConstraint('sandbox_metadata_pk', ['sandbox_id', 'pair_hash'])
    .execute();
  await db.schema
    .createIndex('sandbox_metadata_by_pair')
    .on('sandbox_metadata')
    .columns(['pair_hash', 'sandbox_id'])
    .execute();
}

async function templates(db: Schema): Promise<void> {
  await db.schema
    .createTable('templates')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('team_id', 'text', (column) => column.references('teams.id').onDelete('cascade'))
    .addColumn('public', 'integer', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('updated_at', 'bigint', (column) => column.notNull())
    .addColumn('created_by', 'text', (column) => column.references('users.id').onDelete('set null'))
    .addColumn('last_spawned_at', 'bigint')
    .addColumn('spawn_count', 'bigint', (column) => column.notNull().defaultTo(0))
    .addColumn('build_count', 'integer', (column) => column.notNull().defaultTo(0))
    .execute();
  await db.schema.createIndex('templates_by_team').on('templates').columns(['team_id', 'created_at', 'id']).execute();

  await db.schema
    .createTable('template_aliases')
    .addColumn('namespace', 'text', (column) => column.notNull())
    .addColumn('alias', 'text', (column) => column.notNull())
    .addColumn('template_id', 'text', (column) => column.notNull().references('templates.id').onDelete('cascade'))
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('template_aliases_pk', ['namespace', 'alias'])
    .execute();
  await db.schema.createIndex('template_aliases_by_template').on('template_aliases').column('template_id').execute();

  await db.schema
    .createTable('template_builds')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('template_id', 'text', (column) => column.notNull().references('templates.id').onDelete('cascade'))
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('cpu_count', 'integer', (column) => column.notNull())
    .addColumn('memory_mb', 'integer', (column) => column.notNull())
    .addColumn('disk_size_mb', 'integer', (column) => column.notNull())
    .addColumn('envd_version', 'text', (column) => column.notNull())
    .addColumn('layers', 'text', (column) => column.notNull())
    .addColumn('start_cmd', 'text')
    .addColumn('ready_cmd', 'text')
    .addColumn('default_user', 'text', (column) => column.notNull())
    .addColumn('default_workdir', 'text')
    .addColumn('env', 'text', (column) => column.notNull())
    .addColumn('snapshot_id', 'text')
    .addColumn('reason', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('updated_at', 'bigint', (column) => column.notNull())
    .addColumn('finished_at', 'bigint')
    .execute();
  await db.schema
    .createIndex('template_builds_by_template')
    .on('template_builds')
    .columns(['template_id', 'created_at', 'id'])
    .execute();

  await db.schema
    .createTable('template_tags')
    .addColumn('template_id', 'text', (column) => column.notNull().references('templates.id').onDelete('cascade'))
    .addColumn('tag', 'text', (column) => column.notNull())
    .addColumn('build_id', 'text', (column) => column.notNull().references('template_builds.id').onDelete('cascade'))
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('template_tags_pk', ['template_id', 'tag'])
    .execute();
  // A build that is deleted takes its tags along, which without an index reads the whole table.
  await db.schema.createIndex('template_tags_by_build').on('template_tags').column('build_id').execute();
}
