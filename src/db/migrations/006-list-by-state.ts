import type { Kysely } from 'kysely';

/** A page of a team's running sandboxes in its order, however many paused ones there are. Serves the count by state as well. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createIndex('sandboxes_by_team_state_and_start')
    .on('sandboxes')
    .columns(['team_id', 'state', 'started_at', 'id'])
    .execute();
  await db.schema.dropIndex('sandboxes_by_team_and_state').execute();
}
