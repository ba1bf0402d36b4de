import { Code, ConnectError, type ServiceImpl } from '@connectrpc/connect';
import {
  type CreateSandboxRequest,
  type GuestConfig as GuestMessage,
  type NetworkPolicy as NetworkMessage,
  NodeSandboxState,
  type NodeService,
  type ReserveSandboxRequest,
} from '../../proto/gen/node_pb.js';
import type { RuntimeName } from '../core/config.ts';
import { SandbarError } from '../core/errors.ts';
import type { CallContext } from './direct-transport.ts';
import type { Denial } from './network/denials.ts';
import type { CreateOnNode, Node, NodeExit, NodeNetwork } from './node.ts';
import type { GuestConfig } from './record.ts';
import type { ReliefEvent } from './relief.ts';
import type { WarmKind } from './warm-pool.ts';

/** The node behind proto/node.proto: the same in memory and over the network. */
export function nodeHandlers(node: Node) {
  return {
    createSandbox: (request, context: CallContext) =>
      translated(async () => {
        return { warm: await node.create(toCreate(request), context.signal) };
      }),
    expectSandbox: (request) =>
      translated(async () => {
        node.expect(toKind(request));
        return {};
      }),
    reserveSandbox: (request) => translated(async () => ({ sandboxId: (await node.reserve(toKind(request))) ?? '' })),
    destroySandbox: (request) =>
      translated(async () => {
        await node.destroy(request.sandboxId);
        return {};
      }),
    listSandboxes: () => ({
      sandboxes: [...node.list()].map(([sandboxId, state]) => ({
        sandboxId,
        state: state === 'paused' ? NodeSandboxState.PAUSED : NodeSandboxState.RUNNING,
      })),
    }),
    getUsage: (request) =>
      translated(async () => {
        const use = await node.usage(request.sandboxId);
        return {
          cpuUsec: BigInt(use.cpuUsec),
          memoryUsedBytes: BigInt(use.memoryUsedBytes),
          memoryCacheBytes: BigInt(use.memoryCacheBytes),
          memoryTotalBytes: BigInt(use.memoryTotalBytes),
          diskUsedBytes: BigInt(use.diskUsedBytes),
          diskTotalBytes: BigInt(use.diskTotalBytes),
          pids: use.pids,
        };
      }),
    pauseSandbox: (request) =>
      translated(async () => {
        await node.pause(request.sandboxId, { memory: request.memory, requireAgent: request.requireAgent });
        return {};
      }),
    resumeSandbox: (request) =>
      translated(() =>
        node.resume(request.sandboxId, {
          memory: request.memory,
          guest: toGuest(request.guest),
          ...(request.network !== undefined && { network: toNetwork(request.network) }),
        }),
      ),
    setNetwork: (request) =>
      translated(async () => {
        if (request.network === undefined) throw new SandbarError('invalid', 'network is required');
        await node.setNetwork(request.sandboxId, toNetwork(request.network));
        return {};
      }),
    snapshotSandbox: (request) =>
      translated(async () => {
        const { filesOnly, start } = request;
        await node.snapshot(request.sandboxId, request.snapshotId, { filesOnly, ...(start && { start }) });
        return {};
      }),
    removeSnapshot: (request) =>
      translated(async () => {
        await node.removeSnapshot(request.snapshotId);
        return {};
      }),
    listSnapshots: () => translated(async () => ({ snapshotIds: await node.snapshots() })),
    watch: (_request, context: CallContext) => watch(node, context),
  } satisfies ServiceImpl<typeof NodeService>;
}

function toCreate(request: CreateSandboxRequest): CreateOnNode {
  return {
    ...toKind(request),
    sandboxId: request.sandboxId,
    guest: toGuest(request.guest),
    ...(request.network !== undefined && { network: toNetwork(request.network) }),
  };
}

function toKind(request: CreateSandboxRequest | ReserveSandboxRequest): WarmKind {
  const { resources, rootFs } = request;
  if (resources === undefined || rootFs === undefined)
    throw new SandbarError('invalid', 'resources and root_fs are required');
  return {
    runtime: toRuntime(request.runtime),
    templateId: request.templateId,
    buildId: request.buildId,
    layers: rootFs.layers,
    resources: {
      cpuCount: resources.cpuCount,
      memoryMb: resources.memoryMb,
      diskSizeMb: resources.diskSizeMb,
      pidsMax: resources.pidsMax,
    },
    ...(request.snapshotId !== '' && { snapshotId: request.snapshotId }),
  };
}

function toGuest(guest: GuestMessage | undefined): GuestConfig {
  if (guest === undefined) throw new SandbarError('invalid', 'guest is required');
  return { env: guest.env, defaultUser: guest.defaultUser, defaultWorkdir: guest.defaultWorkdir };
}

function toNetwork({ allow, deny, allowNames, rules, egressProxy, secrets }: NetworkMessage): NodeNetwork {
  const headers = Object.entries(rules).map(([name, rule]) => [name, { ...rule.headers }]);
  const { host, port, username, password } = egressProxy ?? {};
  return {
    policy: {
      allow: [...allow],
      deny: [...deny],
      names: [...allowNames],
      rules: Object.fromEntries(headers),
      ...(host !== undefined && {
        egressProxy: { host, port: port ?? 0, username: username ?? '', password: password ?? '' },
      }),
    },
    secrets: { ...secrets },
  };
}

function toRuntime(name: string): RuntimeName {
  if (name === 'gvisor' || name === 'container') return name;
  throw new SandbarError('invalid', `unknown runtime '${name}'`);
}

async function* watch(node: Node, context: CallContext) {
  type Message = {
    sandboxId: string;
    atMs: bigint;
    event:
      | { case: 'exit'; value: NodeExit }
      | { case: 'relief'; value: ReliefEvent }
      | { case: 'denied'; value: Denial };
  };
  const waiting: Message[] = [];
  let wake: () => void = () => undefined;
  const push = (message: Message) => {
    waiting.push(message);
    wake();
  };
  const onExit = (value: NodeExit) =>
    push({ sandboxId: value.sandboxId, atMs: BigInt(value.atMs), event: { case: 'exit', value } });
  const onRelief = (value: ReliefEvent) =>
    push({ sandboxId: value.sandboxId, atMs: BigInt(Date.now()), event: { case: 'relief', value } });
  const onDenied = (value: Denial) =>
    push({ sandboxId: value.sandboxId, atMs: BigInt(value.atMs), event: { case: 'denied', value } });
  const onAbort = () => wake();
  node.on('exit', onExit);
  node.on('relief', onRelief);
  node.on('denied', onDenied);
  context.signal.addEventListener('abort', onAbort);
  try {
    yield {};
    while (!context.signal.aborted) {
      const next = waiting.shift();
      if (next !== undefined) yield next;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  } finally {
    node.off('exit', onExit);
    node.off('relief', onRelief);
    node.off('denied', onDenied);
    context.signal.removeEventListener('abort', onAbort);
  }
}

/** Our errors as the protocol carries them: the code, and the kind in a header so that the other side can tell 409 from 409. */
async function translated<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof SandbarError)
      throw new ConnectError(error.message, error.connectCode, { 'sandbar-error': error.kind }, undefined, error);
    throw ConnectError.from(error, Code.Internal);
  }
}
