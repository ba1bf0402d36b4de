import type { Duplex } from 'node:stream';

/** A path as a user gave it, and the user it is resolved for; an empty user is the sandbox's default one. */
export interface UserPath {
  user: string;
  path: string;
}

/** One file system entry. */
export interface Entry {
  name: string;
  /** Absolute. */
  path: string;
  /** Size by lstat, bytes. */
  size: number;
  /** st_mode by lstat. */
  mode: number;
  /** st_mode after following links; that of the link itself when it leads nowhere. */
  targetMode: number;
  owner: string;
  group: string;
  /** Nanoseconds since 1970. */
  mtimeNs: bigint;
  /** What a symbolic link leads to, fully resolved (its own path when it leads nowhere); undefined for anything else. */
  linkTarget: string | undefined;
  /** What a user stored with it: its attributes user.e2b.*, named without that prefix. */
  metadata: Record<string, string>;
}

/** A file opened for reading. */
export interface OpenedRead {
  handle: number;
  /** As resolved. */
  path: string;
  /** Bytes. */
  size: number;
  mode: number;
  mtimeNs: bigint;
}

/** A file opened for writing. */
export interface OpenedWrite {
  handle: number;
  /** As resolved. */
  path: string;
  /** The file was not there before. */
  created: boolean;
}

export interface GuestFile {
  path: string;
  data: Uint8Array;
  /** Permission bits. */
  mode: number;
}

/** What may be set in a running sandbox. What is left out stays as it is. */
export interface AgentConfiguration {
  /** 32 bytes; asked of every new connection from then on. */
  secret?: Buffer;
  /** All global environment variables: those not named are gone. */
  env?: Record<string, string>;
  defaultUser?: string;
  defaultWorkdir?: string;
  hostname?: string;
  /** Written as root, parents made. */
  files?: readonly GuestFile[];
  /** Processes the sandbox may have. */
  pidsMax?: number;
}

export interface WatchOptions extends UserPath {
  recursive: boolean;
  /** Events carry the entry they are about, while it exists. */
  includeEntry: boolean;
  allowNetworkMounts: boolean;
}

export type WatchEventKind = 'create' | 'write' | 'remove' | 'rename' | 'chmod';

export interface WatchEvent {
  sequence: number;
  kind: WatchEventKind;
  /** Relative to the watched directory. */
  name: string;
  entry: Entry | undefined;
}

export interface WatchBatch {
  events: WatchEvent[];
  /** Events that were dropped because nobody read them in time. */
  lost: number;
}

export interface TerminalSize {
  cols: number;
  rows: number;
}

export interface StartOptions {
  user: string;
  cmd: string;
  args: readonly string[];
  env: Record<string, string>;
  /** Empty: the default working directory, else the user's home. */
  cwd: string;
  /** Gives the process a terminal of this size. */
  pty?: TerminalSize;
  tag?: string;
  /** Opens a pipe to standard input; otherwise it is /dev/null. */
  stdin: boolean;
  /** SIGKILL after so long, whoever listens; undefined: never. */
  deadlineMs?: number;
  /** Chosen by the caller; a start with one that was used before gives the pid of that time. */
  operationId: Buffer;
  /** Reader of the output from its first byte; undefined: none. */
  subscriber?: number;
}

/** A process by its pid or by the tag it was started with. */
export type ProcessRef = { pid: number } | { tag: string };

export interface ReadOutputOptions {
  process: ProcessRef;
  /** Chosen by the caller, not 0; the agent keeps a position for each. */
  subscriber: number;
  /** Confirms everything before it. */
  offset: number;
  /** Most bytes of data; 0 lets the agent choose. */
  length: number;
  /** How long to wait for the first byte. */
  waitMs: number;
  /** A new subscriber begins at the oldest byte held instead of at the present end. */
  replay: boolean;
}

export type OutputStream = 'stdout' | 'stderr' | 'pty';

export interface OutputChunk {
  stream: OutputStream;
  data: Buffer;
}

export interface ProcessEnd {
  /** -1 when a signal ended the process. */
  exitCode: number;
  /** Number of that signal, else 0. */
  signal: number;
  /** The process was killed at its deadline. */
  deadlineHit: boolean;
}

/** A piece of a process's output, all streams in the order they were read. */
export interface OutputBatch {
  pid: number;
  /** Of the first byte here. The next read goes on at `nextOffset`. */
  offset: number;
  nextOffset: number;
  chunks: OutputChunk[];
  /** Bytes skipped since they are no longer held. */
  lost: number;
  /** Set once nothing is left before the end. */
  end: ProcessEnd | undefined;
}

/** A live process that was started through the agent. */
export interface ProcessInfo {
  pid: number;
  tag: string | undefined;
  cmd: string;
  args: string[];
  env: Record<string, string>;
  cwd: string;
  pty: boolean;
}

export interface Relieved {
  /** 0: nothing could be killed. */
  pid: number;
  name: string;
  /** Bytes, or processes. */
  used: number;
}

export interface DiskUse {
  totalBytes: number;
  usedBytes: number;
}

/**
 * What can be asked of the agent inside one sandbox (docs/agent-protocol.md). Failures the agent reports are `AgentError`s; a lost way to it
 * is a SandbarError `unavailable`. Aborting the signal of a call abandons it.
 */
export interface Agent {
  /** Resolves when the agent answers. */
  ping(signal?: AbortSignal): Promise<void>;
  /** Sets what is named, all at once. */
  configure(change: AgentConfiguration, signal?: AbortSignal): Promise<void>;

  /** The entry at a path; a link is described itself, with the mode of its target beside. */
  stat(at: UserPath, signal?: AbortSignal): Promise<Entry>;
  /** What is below a directory down to `depth` levels, parents before children, links not entered. */
  list(at: UserPath & { depth: number }, signal?: AbortSignal): Promise<{ path: string; entries: Entry[] }>;
  /** Makes a directory and its parents. */
  makeDir(at: UserPath, signal?: AbortSignal): Promise<Entry>;
  /** Renames; makes the parents of the destination; gives the entry at the destination. */
  move(at: UserPath & { destination: string }, signal?: AbortSignal): Promise<Entry>;
  /** Removes whatever is at the path, whole trees too; nothing there is success. */
  remove(at: UserPath, signal?: AbortSignal): Promise<void>;

  /** Opens a file for reading. */
  openRead(at: UserPath, signal?: AbortSignal): Promise<OpenedRead>;
  /** At most `length` bytes from `offset`, in the pieces in which they arrive; fewer mean the end of the file. Goes on by itself after a lost connection. */
  readAt(handle: number, offset: number, length: number, signal?: AbortSignal): AsyncIterableIterator<Buffer>;
  /** Opens a file for writing, making it and its parents; replaces all of its metadata. */
  openWrite(
    at: UserPath & { truncate: boolean; metadata: Record<string, string> },
    signal?: AbortSignal,
  ): Promise<OpenedWrite>;
  /** Writes all pieces one after the other from `offset`; at most 4 MiB together. */
  writeAt(handle: number, offset: number, data: readonly Uint8Array[], signal?: AbortSignal): Promise<void>;
  /** Ends a handle, cutting its file at `truncateAt` where given. An unknown handle is success. */
  closeFile(handle: number, truncateAt?: number): Promise<void>;
  /** Joins the sources in order into the destination, atomically, and removes them. */
  compose(
    request: { user: string; sources: readonly string[]; destination: string },
    signal?: AbortSignal,
  ): Promise<Entry>;

  /** Begins to watch a directory. The watcher lives until it is removed. */
  watchCreate(options: WatchOptions, signal?: AbortSignal): Promise<number>;
  /** Events from `sequence` on, forgetting those before; waits up to `waitMs` for the first. Goes on by itself after a lost connection. */
  watchRead(watcher: number, sequence: number, waitMs: number, signal?: AbortSignal): Promise<WatchBatch>;
  /** Ends a watcher. An unknown one is success. */
  watchRemove(watcher: number): Promise<void>;

  /** Starts a process and gives its pid. */
  start(options: StartOptions, signal?: AbortSignal): Promise<number>;
  /**
   * Starts a process and asks for its first output in the same breath. Resolves with the pid; `output` is that of a readOutput from the
   * first byte. The signal is the reader's: it does not take the start back.
   */
  startAndRead(
    options: StartOptions & { subscriber: number },
    read: { length: number; waitMs: number },
    signal?: AbortSignal,
  ): Promise<{ pid: number; output: Promise<OutputBatch> }>;
  /** The next output of a process as a subscriber sees it; waits for the first byte. Goes on by itself after a lost connection. */
  readOutput(options: ReadOutputOptions, signal?: AbortSignal): Promise<OutputBatch>;
  /** Forgets a subscriber. */
  unsubscribe(pid: number, subscriber: number): Promise<void>;
  /** Writes to standard input or to the terminal; resolves when all of it has been taken. Goes on by itself after a lost connection. */
  writeInput(process: ProcessRef, stream: 'stdin' | 'pty', data: Uint8Array, signal?: AbortSignal): Promise<void>;
  /** Closes standard input, so that the process reads its end. */
  closeStdin(process: ProcessRef, signal?: AbortSignal): Promise<void>;
  /** Sends a signal to the process itself, not to its group. */
  signal(process: ProcessRef, signalNumber: number, signal?: AbortSignal): Promise<void>;
  /** Sets the size of a process's terminal. */
  resize(process: ProcessRef, size: TerminalSize, signal?: AbortSignal): Promise<void>;
  /** The live processes that were started through the agent. */
  processes(signal?: AbortSignal): Promise<ProcessInfo[]>;

  /** A raw connection to a port on the loopback address inside; AgentError REFUSED when nothing listens there. */
  dial(port: number, signal?: AbortSignal): Promise<Duplex>;
  /** Kills the biggest process, by memory or by number of children, and says which. */
  relieve(kind: 'memory' | 'processes', signal?: AbortSignal): Promise<Relieved>;
  /** Size and use of the file system at a path. */
  disk(path: string, signal?: AbortSignal): Promise<DiskUse>;
  /** Writes everything to disk. */
  sync(signal?: AbortSignal): Promise<void>;
  /** Sets the clock of the sandbox, best effort. */
  setTime(timeNs: bigint, signal?: AbortSignal): Promise<void>;
}
