import { messageOf, SandbarError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { TeamRow } from '../db/schema.ts';
import type { SnapshotStore } from '../db/snapshot-store.ts';
import { mayUse, type TemplateStore } from '../db/template-store.ts';
import type { NodeClient } from '../node/client.ts';
import type { TemplateBuilds } from './builds.ts';

export interface RemovalParts {
  templates: Pick<TemplateStore, 'find'>;
  snapshots: Pick<SnapshotStore, 'deleteTemplate'>;
  builds: Pick<TemplateBuilds, 'cancelAll'>;
  node: Pick<NodeClient, 'removeSnapshot'>;
  log: Log;
}

/** Deletes templates and snapshots, which are templates too. */
export class TemplateRemoval {
  readonly #parts: RemovalParts;

  constructor(parts: RemovalParts) {
    this.#parts = parts;
  }

  /** The template that a team's reference means goes whole, whatever tag is named. Refused while sandboxes made from it exist. */
  async remove(team: Pick<TeamRow, 'id' | 'slug'>, reference: string): Promise<void> {
    const template = await this.#parts.templates.find(reference, team);
    if (template === undefined || !(template.teamId === team.id || mayUse(team.id, template)))
      throw new SandbarError('not_found', `template '${reference}' not found`);
    if (template.teamId !== team.id)
      throw new SandbarError('forbidden', `You don't have access to template '${reference}'`);
    await this.#parts.builds.cancelAll(template.id, 'the build was cancelled: its template was deleted');
    const result = await this.#parts.snapshots.deleteTemplate(template.id);
    if ('sandboxes' in result)
      throw new SandbarError(
        'invalid',
        `cannot delete template '${reference}': ${result.sandboxes} running or paused sandboxes were made from it`,
      );
    for (const snapshotId of result.images) {
      try {
        await this.#parts.node.removeSnapshot({ snapshotId });
      } catch (error) {
        // Nobody refers to it any more: the next start removes it.
        this.#parts.log.warn('a snapshot cannot be removed yet', { snapshot: snapshotId, error: messageOf(error) });
      }
    }
  }
}
