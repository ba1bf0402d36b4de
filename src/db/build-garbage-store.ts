import type { Database } from './database.ts';

/** What of the builds nobody can use any more, and what the others stand on. */
export class BuildGarbageStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Deletes builds that ended before a time, that no tag points at and no sandbox was made from, with their logs; of each template the newest stays. Resolves
   * to their number and to the images that were theirs.
   */
  deleteUnused(endedBefore: number): Promise<{ builds: number; images: string[] }> {
    return this.#db.transaction().execute(async (transaction) => {
      const found = await transaction
        .selectFrom('templateBuilds as build')
        .select(['build.id', 'build.snapshotId'])
        .where('build.sourceSandboxId', 'is', null)
        .where('build.status', 'in', ['ready', 'error'])
        .where('build.finishedAt', '<', endedBefore)
        .where('build.id', 'not in', (nested) => nested.selectFrom('templateTags').select('buildId'))
        .where('build.id', 'not in', (nested) => nested.selectFrom('sandboxes').select('buildId'))
        .where(({ exists, selectFrom }) =>
          exists(
            selectFrom('templateBuilds as newer')
              .select('newer.id')
              .whereRef('newer.templateId', '=', 'build.templateId')
              .whereRef('newer.createdAt', '>', 'build.createdAt'),
          ),
        )
        .execute();
      const ids = found.map(({ id }) => id);
      if (ids.length > 0) await transaction.deleteFrom('templateBuilds').where('id', 'in', ids).execute();
      return { builds: ids.length, images: found.flatMap(({ snapshotId }) => snapshotId ?? []) };
    });
  }

  /** Builds that were asked for before a time and never started. */
  async neverStarted(requestedBefore: number): Promise<string[]> {
    const found = await this.#db
      .selectFrom('templateBuilds')
      .select('id')
      .where('status', '=', 'waiting')
      .where('createdAt', '<', requestedBefore)
      .execute();
    return found.map(({ id }) => id);
  }

  /** Layers of every build. */
  async layers(): Promise<Set<string>> {
    const found = await this.#db.selectFrom('templateBuilds').select('layers').execute();
    return new Set(found.flatMap(({ layers }) => JSON.parse(layers) as string[]));
  }
}
