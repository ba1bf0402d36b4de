import type { Node } from '../../node/node.ts';

/** What builds use of the machine they run on, beside making sandboxes on it. */
export type BuildMachine = Pick<Node, 'agent' | 'lifetime' | 'layers' | 'edits' | 'exportLayer' | 'layersInUse'>;
