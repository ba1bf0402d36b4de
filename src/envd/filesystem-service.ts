import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from '@connectrpc/connect';
import { EventType, type Filesystem, type FilesystemEventSchema } from '../../proto/gen/filesystem_pb.js';
import type { WatchEvent, WatchEventKind } from '../agent/contract.ts';
import type { AgentError } from '../agent/errors.ts';
import { KeyedQueue } from '../core/keyed-queue.ts';
import type { Log } from '../core/log.ts';
import { toConnectError, type Wording } from './connect-errors.ts';
import { type SandboxCall, sandboxCallOf } from './context.ts';
import { toEntryInfo } from './entry-info.ts';
import { keepaliveIntervalMs, Silence } from './keepalive.ts';
import { watcherId, watcherNumber } from './watcher-id.ts';

/** A read waits no longer than this, so that a dead way to the sandbox is noticed. */
const MAX_WAIT_MS = 30_000;

interface WatchRequest {
  path: string;
  recursive: boolean;
  includeEntry: boolean;
  allowNetworkMounts: boolean;
}

/** The service filesystem.Filesystem. */
export function createFilesystemService(log: Log): ServiceImpl<typeof Filesystem> {
  /** Polls of one watcher come one after the other: each takes what it gives away. */
  const polls = new KeyedQueue();
  const attempt = async <T>(
    context: HandlerContext,
    wording: Wording,
    action: (call: SandboxCall, signal: AbortSignal) => Promise<T>,
  ): Promise<T> => {
    const call = sandboxCallOf(context);
    try {
      return await action(call, context.signal);
    } catch (error) {
      throw toConnectError(error, call.user, wording, log);
    }
  };
  const watch = (context: HandlerContext, request: WatchRequest) =>
    attempt(context, watchWording(request.path), ({ agent, user }, signal) =>
      agent.watchCreate(
        {
          user,
          path: request.path,
          recursive: request.recursive,
          includeEntry: request.includeEntry,
          allowNetworkMounts: request.allowNetworkMounts,
        },
        signal,
      ),
    );

  return {
    async stat({ path }, context) {
      const entry = await attempt(context, statWording(path), ({ agent, user }, signal) =>
        agent.stat({ user, path }, signal),
      );
      return { entry: toEntryInfo(entry) };
    },

    async makeDir({ path }, context) {
      const entry = await attempt(context, makeDirWording(path), ({ agent, user }, signal) =>
        agent.makeDir({ user, path }, signal),
      );
      return { entry: toEntryInfo(entry) };
    },

    async move({ source, destination }, context) {
      const entry = await attempt(context, moveWording(source), ({ agent, user }, signal) =>
        agent.move({ user, path: source, destination }, signal),
      );
      return { entry: toEntryInfo(entry) };
    },

    async listDir({ path, depth }, context) {
      const { entries } = await attempt(context, listWording(path), ({ agent, user }, signal) =>
        agent.list({ user, path, depth: depth || 1 }, signal),
      );
      return { entries: entries.map(toEntryInfo) };
    },

    async remove({ path }, context) {
      await attempt(context, removeWording(path), ({ agent, user }, signal) => agent.remove({ user, path }, signal));
      return {};
    },

    async *watchDir(request, context) {
      const call = sandboxCallOf(context);
      const signal = AbortSignal.any([context.signal, call.gone]);
      const silence = new Silence(keepaliveIntervalMs(context.requestHeader.get('keepalive-ping-interval')));
      const watcher = await watch(context, request);
      let sequence = 0;
      try {
        yield { event: { case: 'start', value: {} } };
        for (;;) {
          const { events } = await call.agent.watchRead(
            watcher,
            sequence,
            Math.min(silence.leftMs, MAX_WAIT_MS),
            signal,
          );
          for (const event of events) {
            yield { event: { case: 'filesystem', value: toFilesystemEvent(event) } };
            sequence = event.sequence + 1;
            silence.broken();
          }
          if (silence.leftMs === 0) {
            yield { event: { case: 'keepalive', value: {} } };
            silence.broken();
          }
        }
      } catch (error) {
        throw toConnectError(error, call.user, {}, log);
      } finally {
        void call.agent.watchRemove(watcher).catch(() => undefined);
      }
    },

    async createWatcher(request, context) {
      const watcher = await watch(context, request);
      return { watcherId: watcherId(sandboxCallOf(context).row.id, watcher) };
    },

    async getWatcherEvents({ watcherId: id }, context) {
      const events = await attempt(context, watcherWording(id), ({ agent, row }, signal) => {
        const watcher = knownWatcher(row.id, id);
        return polls.run(id, async () => {
          const batch = await agent.watchRead(watcher, 0, 0, signal);
          const last = batch.events.at(-1);
          // Taking them is what drains the queue: a read from behind them lets the agent forget them.
          if (last) await agent.watchRead(watcher, last.sequence + 1, 0, signal);
          return batch.events;
        });
      });
      return { events: events.map(toFilesystemEvent) };
    },

    async removeWatcher({ watcherId: id }, context) {
      await attempt(context, watcherWording(id), async ({ agent, row }, signal) => {
        const watcher = knownWatcher(row.id, id);
        // Removing is silent about what was not there; a read is not.
        await agent.watchRead(watcher, 0, 0, signal);
        await agent.watchRemove(watcher);
      });
      return {};
    },
  };
}

const eventTypes: Record<WatchEventKind, EventType> = {
  create: EventType.CREATE,
  write: EventType.WRITE,
  remove: EventType.REMOVE,
  rename: EventType.RENAME,
  chmod: EventType.CHMOD,
};

function toFilesystemEvent(event: WatchEvent): MessageInitShape<typeof FilesystemEventSchema> {
  const gone = event.kind === 'remove' || event.kind === 'rename';
  return {
    name: event.name,
    type: eventTypes[event.kind],
    ...(event.entry !== undefined && !gone && { entry: toEntryInfo(event.entry) }),
  };
}

function knownWatcher(sandboxId: string, id: string): number {
  const watcher = watcherNumber(sandboxId, id);
  if (watcher === undefined) throw watcherNotFound(id);
  return watcher;
}

function watcherNotFound(id: string): ConnectError {
  return new ConnectError(`watcher with id ${id} not found`, Code.NotFound);
}

const notFound = (message: string) => new ConnectError(message, Code.NotFound);
const invalid = (message: string) => new ConnectError(message, Code.InvalidArgument);
const internal = (message: string) => new ConnectError(message, Code.Internal);
/** The path an error is about: as the agent resolved it, else as it was asked for. */
const where = (error: AgentError, path: string) => error.path || path;

function statWording(path: string): Wording {
  return {
    NOT_FOUND: (error) => notFound(`file not found: lstat ${where(error, path)}: no such file or directory`),
    NOT_DIRECTORY: (error) => internal(`error getting file info: lstat ${where(error, path)}: not a directory`),
  };
}

function makeDirWording(path: string): Wording {
  return {
    EXISTS: (error) => new ConnectError(`directory already exists: ${where(error, path)}`, Code.AlreadyExists),
    // With the kernel's error it is a parent that is in the way, without it the path itself.
    NOT_DIRECTORY: (error) =>
      error.errno === 0
        ? invalid(`path already exists but it is not a directory: ${where(error, path)}`)
        : internal(`error creating directory: path is a file: ${where(error, path)}`),
  };
}

function moveWording(source: string): Wording {
  const renaming = (error: AgentError) => internal(`error renaming: ${error.message}`);
  return {
    NOT_FOUND: (error) => notFound(`source file not found: ${where(error, source)}: no such file or directory`),
    EXISTS: renaming,
    IS_DIRECTORY: renaming,
    NOT_DIRECTORY: renaming,
    PERMISSION: renaming,
    INTERNAL: renaming,
    INVALID: (error) => (error.errno === 0 ? invalid(error.message) : renaming(error)),
  };
}

function listWording(path: string): Wording {
  return {
    NOT_FOUND: (error) => notFound(`path not found: stat ${where(error, path)}: no such file or directory`),
    NOT_DIRECTORY: (error) => invalid(`path is not a directory: ${where(error, path)}`),
    LOOP: (error) =>
      new ConnectError(`cyclic symlink or chain >255 links at "${where(error, path)}"`, Code.FailedPrecondition),
  };
}

function removeWording(path: string): Wording {
  const removing = (error: AgentError) =>
    internal(`error removing file or directory: ${where(error, path)}: ${error.message}`);
  return { NOT_DIRECTORY: removing, PERMISSION: removing, INTERNAL: removing, LOOP: removing };
}

function watchWording(path: string): Wording {
  return {
    NOT_FOUND: (error) => notFound(`path ${where(error, path)} not found: no such file or directory`),
    NOT_DIRECTORY: (error) => invalid(`path ${where(error, path)} not a directory: ${error.message}`),
    NETWORK_MOUNT: (error) => invalid(`cannot watch path on network filesystem: ${where(error, path)}`),
  };
}

function watcherWording(id: string): Wording {
  return { NOT_FOUND: () => watcherNotFound(id) };
}
