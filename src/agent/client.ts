import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type { AgentTarget } from './connection.ts';
import type {
  Agent,
  AgentConfiguration,
  DiskUse,
  Entry,
  OpenedRead,
  OpenedWrite,
  OutputBatch,
  ProcessInfo,
  ProcessRef,
  ReadOutputOptions,
  Relieved,
  StartOptions,
  TerminalSize,
  UserPath,
  WatchBatch,
  WatchOptions,
} from './contract.ts';
import { isAgentError } from './errors.ts';
import { type Fields, FieldWriter, field } from './fields.ts';
import { type Operation, operation } from './frame.ts';
import { ConnectionPool, closedError, type Lease, Patience, type Repeat } from './pool.ts';
import {
  decodeEntry,
  decodeOutput,
  decodeProcess,
  decodeWatchEvent,
  entryOf,
  writeAssignments,
  writeProcessRef,
} from './records.ts';

/** Input is cut into pieces of this size, each with an operation id of its own. */
const INPUT_PIECE_BYTES = 1024 * 1024;
const REPLACE_ENV = 1;
const streamNumbers = { stdin: 1, pty: 3 } as const;
const reliefKinds = { memory: 1, processes: 2 } as const;

/** The client of one sandbox's agent. Connections are opened on demand, kept, and replaced when a checkpoint has reset them. */
export class AgentClient implements Agent {
  readonly #pool: ConnectionPool;

  constructor(target: AgentTarget, options: { keepOne?: boolean } = {}) {
    this.#pool = new ConnectionPool(target, options);
  }

  /**
   * Prepares for a checkpoint: waits for requests in flight (at most `limitMs`), holds new ones back and closes every
   * connection, tunnels included. Nothing reaches the agent until `reopen`.
   */
  quiesce(limitMs?: number): Promise<void> {
    return this.#pool.quiesce(limitMs);
  }

  /** True while requests are held back. */
  get held(): boolean {
    return this.#pool.held;
  }

  /** Lets held requests go on; waiting reads continue at the byte where they were. */
  reopen(): void {
    this.#pool.reopen();
  }

  /** Connects elsewhere from now on: the sandbox has moved, or has another secret. */
  retarget(host: string, secret: Buffer, port: number = this.#pool.target.port): void {
    this.#pool.retarget({ host, port, secret });
  }

  /** Fails everything that waits and everything to come. */
  close(reason: string): void {
    this.#pool.close(closedError(reason));
  }

  async ping(signal?: AbortSignal): Promise<void> {
    await this.#call(operation.PING, new FieldWriter(), 'once', signal);
  }

  async configure(change: AgentConfiguration, signal?: AbortSignal): Promise<void> {
    await this.#call(operation.CONFIGURE, configuration(change), 'once', signal);
    if (change.secret !== undefined) this.#pool.setSecret(change.secret);
  }

  /** Configures before anything else is asked, without waiting for it; `settled` begins it at once and waits. */
  configureFirst(change: Omit<AgentConfiguration, 'secret'>): void {
    const fields = configuration(change);
    this.#pool.putFirst((connection) => connection.call(operation.CONFIGURE, fields));
  }

  settled(): Promise<void> {
    return this.#pool.settled();
  }

  async stat(at: UserPath, signal?: AbortSignal): Promise<Entry> {
    return entryOf(await this.#call(operation.STAT, userPath(at), 'once', signal));
  }

  async list(at: UserPath & { depth: number }, signal?: AbortSignal): Promise<{ path: string; entries: Entry[] }> {
    const fields = userPath(at).number(field.depth, at.depth);
    const frames = await this.#pool.once('once', signal, (connection) =>
      connection.call(operation.LIST, fields, signal),
    );
    return {
      path: frames.find((frame) => frame.has(field.path))?.text(field.path) ?? '',
      entries: frames.flatMap((frame) => frame.all(field.entry).map(decodeEntry)),
    };
  }

  async makeDir(at: UserPath, signal?: AbortSignal): Promise<Entry> {
    return entryOf(await this.#call(operation.MAKE_DIR, userPath(at), 'never', signal));
  }

  async move(at: UserPath & { destination: string }, signal?: AbortSignal): Promise<Entry> {
    const fields = userPath(at).text(field.destination, at.destination);
    return entryOf(await this.#call(operation.MOVE, fields, 'never', signal));
  }

  async remove(at: UserPath, signal?: AbortSignal): Promise<void> {
    await this.#call(operation.REMOVE, userPath(at), 'once', signal);
  }

  async openRead(at: UserPath, signal?: AbortSignal): Promise<OpenedRead> {
    const answer = await this.#call(operation.OPEN_READ, userPath(at), 'once', signal);
    return {
      handle: answer.number(field.handle),
      path: answer.text(field.path),
      size: answer.number(field.size),
      mode: answer.number(field.mode),
      mtimeNs: answer.bigint(field.mtimeNs),
    };
  }

  async *readAt(handle: number, offset: number, length: number, signal?: AbortSignal): AsyncIterableIterator<Buffer> {
    const patience = new Patience(this.#pool, signal);
    let taken = 0;
    while (taken < length) {
      let lease: Lease | undefined;
      try {
        lease = await this.#pool.lease(signal);
        const fields = new FieldWriter()
          .number(field.handle, handle)
          .number(field.offset, offset + taken)
          .number(field.length, length - taken);
        for await (const piece of lease.connection.read(operation.READ_AT, fields, signal)) {
          taken += piece.length;
          patience.reset();
          yield piece;
        }
        return;
      } catch (error) {
        await patience.afterLoss(error);
      } finally {
        lease?.release();
      }
    }
  }

  async openWrite(
    at: UserPath & { truncate: boolean; metadata: Record<string, string> },
    signal?: AbortSignal,
  ): Promise<OpenedWrite> {
    const fields = userPath(at).flag(field.truncate, at.truncate);
    writeAssignments(fields, field.xattr, at.metadata);
    const answer = await this.#call(operation.OPEN_WRITE, fields, 'never', signal);
    return {
      handle: answer.number(field.handle),
      path: answer.text(field.path),
      created: answer.flag(field.created),
    };
  }

  async writeAt(handle: number, offset: number, data: readonly Uint8Array[], signal?: AbortSignal): Promise<void> {
    const fields = new FieldWriter().number(field.handle, handle).number(field.offset, offset);
    await this.#call(operation.WRITE_AT, fields.bytes(field.data, data), 'once', signal);
  }

  async closeFile(handle: number, truncateAt?: number): Promise<void> {
    const fields = new FieldWriter().number(field.handle, handle);
    if (truncateAt !== undefined) fields.flag(field.truncate, true).number(field.offset, truncateAt);
    await unlessUnknown(this.#call(operation.CLOSE, fields, 'once'));
  }

  async compose(
    request: { user: string; sources: readonly string[]; destination: string },
    signal?: AbortSignal,
  ): Promise<Entry> {
    const fields = new FieldWriter().text(field.user, request.user);
    for (const source of request.sources) fields.textAlways(field.source, source);
    fields.text(field.destination, request.destination);
    return entryOf(await this.#call(operation.COMPOSE, fields, 'never', signal));
  }

  async watchCreate(options: WatchOptions, signal?: AbortSignal): Promise<number> {
    const fields = userPath(options)
      .flag(field.recursive, options.recursive)
      .flag(field.includeEntry, options.includeEntry)
      .flag(field.allowNetworkMounts, options.allowNetworkMounts);
    return (await this.#call(operation.WATCH_CREATE, fields, 'never', signal)).number(field.watcher);
  }

  async watchRead(watcher: number, sequence: number, waitMs: number, signal?: AbortSignal): Promise<WatchBatch> {
    const fields = new FieldWriter()
      .number(field.watcher, watcher)
      .number(field.sequence, sequence)
      .number(field.waitMs, waitMs);
    const frames = await this.#wait(operation.WATCH_READ, fields, signal);
    return {
      events: frames.flatMap((frame) => frame.all(field.event).map(decodeWatchEvent)),
      lost: frames.reduce((sum, frame) => sum + frame.number(field.lost), 0),
    };
  }

  async watchRemove(watcher: number): Promise<void> {
    await unlessUnknown(this.#call(operation.WATCH_REMOVE, new FieldWriter().number(field.watcher, watcher), 'once'));
  }

  async start(options: StartOptions, signal?: AbortSignal): Promise<number> {
    return (await this.#call(operation.START, startFields(options), 'once', signal)).number(field.pid);
  }

  async startAndRead(
    options: StartOptions & { subscriber: number },
    read: { length: number; waitMs: number },
    signal?: AbortSignal,
  ): Promise<{ pid: number; output: Promise<OutputBatch> }> {
    const start = startFields(options);
    const position = { subscriber: options.subscriber, offset: 0, replay: false, ...read };
    const readFirst = outputFields(new FieldWriter().bytes(field.operationId, [options.operationId]), position);
    const { first, second } = await this.#pool.both('once', signal, (connection) =>
      connection.callBoth([operation.START, start], [operation.READ_OUTPUT, readFirst]),
    );
    const pid = only(first).number(field.pid);
    // A connection that is gone, or an agent from a snapshot that is too old to know the process by its start.
    const askAgain = () => this.readOutput({ process: { pid }, ...position }, signal);
    return { pid, output: second.then((frames) => decodeOutput(only(frames)), askAgain) };
  }

  async readOutput(options: ReadOutputOptions, signal?: AbortSignal): Promise<OutputBatch> {
    const fields = outputFields(writeProcessRef(new FieldWriter(), options.process), options);
    return decodeOutput(only(await this.#wait(operation.READ_OUTPUT, fields, signal)));
  }

  async unsubscribe(pid: number, subscriber: number): Promise<void> {
    const fields = new FieldWriter().number(field.pid, pid).number(field.subscriber, subscriber);
    await unlessUnknown(this.#call(operation.UNSUBSCRIBE, fields, 'once'));
  }

  async writeInput(
    process: ProcessRef,
    stream: 'stdin' | 'pty',
    data: Uint8Array,
    signal?: AbortSignal,
  ): Promise<void> {
    let at = 0;
    do {
      const fields = writeProcessRef(new FieldWriter(), process)
        .number(field.stream, streamNumbers[stream])
        .bytes(field.operationId, [newOperationId()])
        .bytes(field.data, [data.subarray(at, at + INPUT_PIECE_BYTES)]);
      // A process that does not read makes this wait: like a read it is taken away at a checkpoint and made again, and the
      // agent knows by the operation id how far it had come.
      await this.#wait(operation.WRITE_INPUT, fields, signal);
      at += INPUT_PIECE_BYTES;
    } while (at < data.length);
  }

  async closeStdin(process: ProcessRef, signal?: AbortSignal): Promise<void> {
    await this.#call(operation.CLOSE_STDIN, writeProcessRef(new FieldWriter(), process), 'once', signal);
  }

  async signal(process: ProcessRef, signalNumber: number, signal?: AbortSignal): Promise<void> {
    const fields = writeProcessRef(new FieldWriter(), process).number(field.signal, signalNumber);
    await this.#call(operation.SIGNAL, fields, 'never', signal);
  }

  async resize(process: ProcessRef, size: TerminalSize, signal?: AbortSignal): Promise<void> {
    const fields = writeProcessRef(new FieldWriter(), process)
      .number(field.cols, size.cols)
      .number(field.rows, size.rows);
    await this.#call(operation.RESIZE, fields, 'once', signal);
  }

  async processes(signal?: AbortSignal): Promise<ProcessInfo[]> {
    const frames = await this.#pool.once('once', signal, (connection) =>
      connection.call(operation.PROCESSES, new FieldWriter(), signal),
    );
    return frames.flatMap((frame) => frame.all(field.process).map(decodeProcess));
  }

  dial(port: number, signal?: AbortSignal): Promise<Duplex> {
    const fields = new FieldWriter().number(field.port, port);
    return this.#pool.tunnel(signal, (connection) => connection.dial(operation.DIAL, fields, signal));
  }

  async relieve(kind: 'memory' | 'processes', signal?: AbortSignal): Promise<Relieved> {
    const fields = new FieldWriter().number(field.kind, reliefKinds[kind]);
    const answer = await this.#call(operation.RELIEVE, fields, 'never', signal);
    return { pid: answer.number(field.pid), name: answer.text(field.name), used: answer.number(field.used) };
  }

  async disk(path: string, signal?: AbortSignal): Promise<DiskUse> {
    const answer = await this.#call(operation.DISK, new FieldWriter().text(field.path, path), 'once', signal);
    return { totalBytes: answer.number(field.total), usedBytes: answer.number(field.used) };
  }

  async sync(signal?: AbortSignal): Promise<void> {
    await this.#call(operation.SYNC, new FieldWriter(), 'once', signal);
  }

  async setTime(timeNs: bigint, signal?: AbortSignal): Promise<void> {
    await this.#call(operation.SET_TIME, new FieldWriter().number(field.mtimeNs, timeNs), 'once', signal);
  }

  async #call(type: Operation, fields: FieldWriter, repeat: Repeat, signal?: AbortSignal): Promise<Fields> {
    return only(await this.#pool.once(repeat, signal, (connection) => connection.call(type, fields, signal)));
  }

  #wait(type: Operation, fields: FieldWriter, signal: AbortSignal | undefined): Promise<Fields[]> {
    return this.#pool.resumable(signal, (connection) => connection.call(type, fields, signal));
  }
}

/** A name for one attempt at something, so that asking again does not do it again. */
export function newOperationId(): Buffer {
  return randomBytes(16);
}

function configuration(change: AgentConfiguration): FieldWriter {
  const fields = new FieldWriter();
  if (change.env !== undefined) {
    fields.number(field.kind, REPLACE_ENV);
    writeAssignments(fields, field.env, change.env);
  }
  fields.text(field.defaultUser, change.defaultUser ?? '');
  fields.text(field.defaultWorkdir, change.defaultWorkdir ?? '');
  fields.text(field.hostname, change.hostname ?? '');
  for (const file of change.files ?? []) {
    const record = new FieldWriter().text(field.path, file.path).number(field.mode, file.mode);
    fields.record(field.file, record.bytes(field.data, [file.data]));
  }
  if (change.pidsMax !== undefined) fields.number(field.pidsMax, change.pidsMax);
  if (change.secret !== undefined) fields.bytes(field.secret, [change.secret]);
  return fields;
}

function userPath(at: UserPath): FieldWriter {
  return new FieldWriter().text(field.user, at.user).text(field.path, at.path);
}

function startFields(options: StartOptions): FieldWriter {
  const fields = new FieldWriter().text(field.user, options.user).text(field.cmd, options.cmd);
  for (const arg of options.args) fields.textAlways(field.arg, arg);
  writeAssignments(fields, field.env, options.env).text(field.cwd, options.cwd);
  if (options.pty) {
    fields.flag(field.pty, true).number(field.cols, options.pty.cols).number(field.rows, options.pty.rows);
  }
  fields
    .text(field.tag, options.tag ?? '')
    .flag(field.stdin, options.stdin)
    .bytes(field.operationId, [options.operationId]);
  if (options.deadlineMs !== undefined) fields.number(field.deadlineMs, options.deadlineMs);
  if (options.subscriber !== undefined) fields.number(field.subscriber, options.subscriber);
  return fields;
}

function outputFields(process: FieldWriter, options: Omit<ReadOutputOptions, 'process'>): FieldWriter {
  return process
    .number(field.subscriber, options.subscriber)
    .number(field.offset, options.offset)
    .number(field.length, options.length)
    .number(field.waitMs, options.waitMs)
    .flag(field.replay, options.replay);
}

function only(frames: Fields[]): Fields {
  const [first] = frames;
  if (first === undefined) throw new RangeError('the agent gave an empty answer');
  return first;
}

async function unlessUnknown(call: Promise<Fields>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!isAgentError(error, 'NOT_FOUND')) throw error;
  }
}
