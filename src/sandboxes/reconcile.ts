import { NodeSandboxState } from '../../proto/gen/node_pb.js';
import type { Log } from '../core/log.ts';
import type { SandboxStore } from '../db/sandbox-store.ts';
import type { NodeClient } from '../node/client.ts';
import type { SandboxRow } from './contract.ts';

/**
 * Makes rows and machine agree after a restart. What was half made or half killed is finished off; what was between running and paused is
 * taken for what the machine says it is; what ran and is gone is said; what nobody knows is removed.
 */
export async function reconcile(store: SandboxStore, node: NodeClient, log: Log): Promise<void> {
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
      if (!half) log.warn('sandbox was lost with its machine', { sandbox: row.id, state: row.state, reason: 'host' });
      await node.destroySandbox({ sandboxId: row.id });
      await store.delete(row.id);
      return;
    }
    const actual = state === NodeSandboxState.PAUSED ? 'paused' : 'running';
    if (row.state !== actual) await store.compareAndSetState(row.id, [row.state], actual);
  }
}
