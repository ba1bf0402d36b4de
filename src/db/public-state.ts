import type { PublicState, SandboxState } from '../sandboxes/contract.ts';

/** The internal states behind each public one. A starting or dying sandbox is not shown at all. */
export const statesOf: Record<PublicState, readonly SandboxState[]> = {
  running: ['running', 'snapshotting'],
  paused: ['pausing', 'paused', 'resuming'],
};

/** What the outside is told of a state; undefined where the sandbox does not exist for it. */
export function publicStateOf(state: SandboxState): PublicState | undefined {
  if (statesOf.running.includes(state)) return 'running';
  if (statesOf.paused.includes(state)) return 'paused';
  return undefined;
}
