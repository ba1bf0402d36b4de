import { type Client, ConnectError, createClient } from '@connectrpc/connect';
import { NodeService } from '../../proto/gen/node_pb.js';
import { type ErrorKind, SandbarError } from '../core/errors.ts';
import { directTransport } from './direct-transport.ts';
import type { Node } from './node.ts';
import { nodeHandlers } from './service.ts';

/** The node as the control plane calls it. */
export type NodeClient = Client<typeof NodeService>;

/** A client of a node in this same process. */
export function localNodeClient(node: Node): NodeClient {
  return createClient(NodeService, directTransport(nodeHandlers(node)));
}

/** A failure of a node call, as it was thrown on the node. */
export function fromNode(thrown: unknown): SandbarError {
  if (thrown instanceof SandbarError) return thrown;
  const error = ConnectError.from(thrown);
  const kind = error.metadata.get('sandbar-error');
  return new SandbarError((kind as ErrorKind | null) ?? 'internal', error.rawMessage, { cause: thrown });
}
