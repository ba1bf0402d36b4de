import type { Kysely } from 'kysely';

/** Why a sandbox is being killed, so that a service that is killed meanwhile can still say so. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('sandboxes').addColumn('end_reason', 'text').execute();
}
