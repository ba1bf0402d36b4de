import { NodeSandboxState } from '../../proto/gen/node_pb.js';
import type { Log } from '../core/log.ts';
import type { SandboxPatch, SandboxStore } from '../db/sandbox-store.ts';
import type { LifecycleObserver } from '../events/contract.ts';
import type { NodeClient } from '../node/client.ts';
import type { SandboxRow } from './contract.ts';

export interface ReconcileParts {
  store: SandboxStore;
  node: NodeClient;
  observer: LifecycleObserver;
  log: Log;
}

/** Life of a sandbox that is found running although nobody gave it a deadline that still holds. */
const UNEXPECTED_LIFE_MS = 300_000;

/**
 * Makes rows and machine agree after a restart. What was half made or half killed is finished off; what was between running and paused is
 * taken for what the machine says it is; what ran and is gone is said; what nobody knows is removed.
 */
export async function reconcile({ store, node, observer, log }: ReconcileParts): Promise<void> {
  const { sandboxes } = await node.listSandboxes({});
  const present = new Map(sandboxes.map(({ sandboxId, state }) => [sandboxId, state]));
  const rows = await store.allInStates([
    'starting',
    'running',
    'snapshotting',
    'pausing',
    'paused',
    'resuming',
    'killing',
  ]);
  for (const row of rows) {
    const state = present.get(row.id);
    present.delete(row.id);
    await settle(row, state);
  }
  for (const sandboxId of present.keys()) await node.destroySandbox({ sandboxId });

  async function settle(row: SandboxRow, state: NodeSandboxState | undefined): Promise<void> {
    const half = row.state === 'starting' || row.state === 'killing';
    if (half || state === undefined) {
      if (!half) {
        log.warn('sandbox was lost with its machine', { sandbox: row.id, state: row.state, reason: 'host' });
        await observer.killed(row, 'host', '');
      }
      // The service may have been killed before it could say why the sandbox was.
      if (row.endReason !== null && !(await observer.wasKilled(row))) await observer.killed(row, row.endReason, '');
      await node.destroySandbox({ sandboxId: row.id });
      await store.delete(row.id);
      return;
    }
    const actual = state === NodeSandboxState.PAUSED ? 'paused' : 'running';
    if (row.state !== actual) await store.compareAndSetState(row.id, [row.state], actual, changeOf(row, actual));
  }
}

/** What a sandbox that is found in another state than its row says takes over from the moment. */
function changeOf(row: SandboxRow, actual: 'paused' | 'running'): SandboxPatch {
  const now = Date.now();
  if (actual === 'paused') return { endAt: Math.min(row.endAt, now) };
  // A resume wrote the new deadline before it began; a pause that did not come to its end left the old one.
  return row.state === 'paused' ? { startedAt: now, endAt: now + UNEXPECTED_LIFE_MS } : {};
}
