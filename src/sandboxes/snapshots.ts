import { messageOf, SandbarError } from '../core/errors.ts';
import { newUuid } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { TeamRow } from '../db/schema.ts';
import type { SnapshotQuery, SnapshotRow, SnapshotStore } from '../db/snapshot-store.ts';
import { parseTemplateReference, type TemplateReference } from '../db/template-reference.ts';
import type { TemplateStore } from '../db/template-store.ts';
import type { LifecycleObserver } from '../events/contract.ts';
import type { NodeClient } from '../node/client.ts';
import type { Sandboxes, SandboxRow } from './contract.ts';

export interface SnapshotParts {
  store: SnapshotStore;
  templates: Pick<TemplateStore, 'getBuild' | 'find'>;
  sandboxes: Pick<Sandboxes, 'writeSnapshot'>;
  node: NodeClient;
  observer: LifecycleObserver;
  log: Log;
}

/** A team as far as the names of its snapshots depend on it. */
type Team = Pick<TeamRow, 'id' | 'slug'>;

/** Snapshots that users take of their sandboxes, to make others from. */
export class Snapshots {
  readonly #parts: SnapshotParts;

  constructor(parts: SnapshotParts) {
    this.#parts = parts;
  }

  /** Removes images that nobody refers to: their sandbox was written down, and the service ended before the store knew. */
  async start(): Promise<void> {
    await this.#parts.store.forgetUntagged();
    const inUse = await this.#parts.store.imagesInUse();
    const { snapshotIds } = await this.#parts.node.listSnapshots({});
    await this.#remove(snapshotIds.filter((id) => !inUse.has(id)));
  }

  /** Writes a running sandbox down; it goes on. With a name that the team has already, it becomes what that name means from now on. */
  async create(
    team: Team,
    sandboxId: string,
    { name, filesOnly }: { name: string | undefined; filesOnly: boolean },
  ): Promise<SnapshotRow> {
    const reference = name === undefined ? undefined : ownReference(team, name);
    const image = `snap-${newUuid()}`;
    const row = await this.#parts.sandboxes.writeSnapshot(team.id, sandboxId, image, { filesOnly });
    try {
      const content = await this.#contentOf(row, image);
      const now = Date.now();
      const snapshot = await this.#parts.store.insert({
        team,
        name: reference,
        sourceSandboxId: sandboxId,
        content,
        now,
      });
      this.#parts.observer.snapshotted(row, snapshotIdOf(snapshot));
      await this.#remove(await this.#parts.store.forgetUntagged());
      return snapshot;
    } catch (error) {
      await this.#remove([image]);
      throw error;
    }
  }

  /** A page of the team's snapshots, newest first. `name` without a tag means every tag of it. */
  async list(
    team: Team,
    query: Pick<SnapshotQuery, 'sandboxId' | 'limit' | 'cursor'> & { name: string | null },
  ): Promise<Awaited<ReturnType<SnapshotStore['list']>>> {
    const { sandboxId, limit, cursor, name } = query;
    if (name === null)
      return this.#parts.store.list(team.id, { sandboxId, limit, cursor, templateId: null, tag: null });
    const template = await this.#parts.templates.find(name, team);
    if (template === undefined) return { items: [], next: null };
    const tag = parseTemplateReference(name).tag ?? null;
    return this.#parts.store.list(team.id, { sandboxId, limit, cursor, templateId: template.id, tag });
  }

  async #contentOf(row: SandboxRow, image: string) {
    const build = await this.#parts.templates.getBuild(row.buildId);
    if (build === undefined) throw new SandbarError('not_found', `build ${row.buildId} is gone`);
    const { layers, defaultUser, defaultWorkdir, env } = build;
    return {
      cpuCount: row.cpuCount,
      memoryMb: row.memoryMb,
      diskSizeMb: row.diskSizeMb,
      envdVersion: row.envdVersion,
      layers,
      startCmd: null,
      readyCmd: null,
      defaultUser,
      defaultWorkdir,
      env,
      snapshotId: image,
    };
  }

  async #remove(images: readonly string[]): Promise<void> {
    for (const snapshotId of images) {
      try {
        await this.#parts.node.removeSnapshot({ snapshotId });
      } catch (error) {
        this.#parts.log.warn('a snapshot cannot be removed yet', { snapshot: snapshotId, error: messageOf(error) });
      }
    }
  }
}

/** As users name a snapshot: `namespace/alias:tag`, or by its template where it has no name. */
export function snapshotIdOf({ templateId, tag, names }: SnapshotRow): string {
  return `${names[0] ?? templateId}:${tag}`;
}

function ownReference(team: Team, name: string): TemplateReference {
  const reference = parseTemplateReference(name);
  if (reference.namespace !== undefined && reference.namespace !== team.slug)
    throw new SandbarError('invalid', `namespace '${reference.namespace}' must match your team '${team.slug}'`);
  return reference;
}
