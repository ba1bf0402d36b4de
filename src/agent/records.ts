import type {
  Entry,
  OutputBatch,
  OutputChunk,
  OutputStream,
  ProcessInfo,
  ProcessRef,
  WatchEvent,
  WatchEventKind,
} from './contract.ts';
import { Fields, type FieldWriter, field } from './fields.ts';

/** Records of the agent's answers, as the types of the contract. */

export function decodeEntry(bytes: Buffer): Entry {
  const fields = new Fields(bytes);
  const link = fields.bytes(field.linkTarget);
  return {
    name: fields.text(field.name),
    path: fields.text(field.path),
    size: fields.number(field.size),
    mode: fields.number(field.mode),
    targetMode: fields.number(field.targetMode),
    owner: fields.text(field.owner),
    group: fields.text(field.group),
    mtimeNs: fields.bigint(field.mtimeNs),
    linkTarget: link?.toString('utf8'),
    metadata: assignments(fields.all(field.xattr)),
  };
}

/** The one entry of an answer that has one. */
export function entryOf(fields: Fields): Entry {
  return decodeEntry(fields.bytes(field.entry) ?? Buffer.alloc(0));
}

const streams: Record<number, OutputStream> = { 1: 'stdout', 2: 'stderr', 3: 'pty' };

export function decodeOutput(fields: Fields): OutputBatch {
  const chunks = fields.all(field.chunk).map((bytes): OutputChunk => {
    const chunk = new Fields(bytes);
    return {
      stream: streams[chunk.number(field.stream)] ?? 'stdout',
      data: chunk.bytes(field.data) ?? Buffer.alloc(0),
    };
  });
  const offset = fields.number(field.offset);
  return {
    pid: fields.number(field.pid),
    offset,
    nextOffset: chunks.reduce((sum, chunk) => sum + chunk.data.length, offset),
    chunks,
    lost: fields.number(field.lost),
    end: fields.flag(field.ended)
      ? {
          exitCode: fields.signed(field.exitCode),
          signal: fields.number(field.signal),
          deadlineHit: fields.flag(field.deadlineHit),
        }
      : undefined,
  };
}

const eventKinds: Record<number, WatchEventKind> = { 1: 'create', 2: 'write', 3: 'remove', 4: 'rename', 5: 'chmod' };

export function decodeWatchEvent(bytes: Buffer): WatchEvent {
  const fields = new Fields(bytes);
  const entry = fields.bytes(field.entry);
  return {
    sequence: fields.number(field.sequence),
    kind: eventKinds[fields.number(field.kind)] ?? 'write',
    name: fields.text(field.name),
    entry: entry === undefined ? undefined : decodeEntry(entry),
  };
}

export function decodeProcess(bytes: Buffer): ProcessInfo {
  const fields = new Fields(bytes);
  return {
    pid: fields.number(field.pid),
    tag: fields.text(field.tag) || undefined,
    cmd: fields.text(field.cmd),
    args: fields.all(field.arg).map((arg) => arg.toString('utf8')),
    env: assignments(fields.all(field.env)),
    cwd: fields.text(field.cwd),
    pty: fields.flag(field.pty),
  };
}

/** Names a process in a request. */
export function writeProcessRef(fields: FieldWriter, process: ProcessRef): FieldWriter {
  return 'pid' in process ? fields.number(field.pid, process.pid) : fields.text(field.tag, process.tag);
}

/** Environment variables or attributes, each as NAME=value. */
export function writeAssignments(fields: FieldWriter, no: number, values: Record<string, string>): FieldWriter {
  for (const [name, value] of Object.entries(values)) fields.text(no, `${name}=${value}`);
  return fields;
}

function assignments(values: readonly Buffer[]): Record<string, string> {
  const result: Record<string, string> = {};
  for (const bytes of values) {
    const text = bytes.toString('utf8');
    const at = text.indexOf('=');
    if (at > 0) result[text.slice(0, at)] = text.slice(at + 1);
  }
  return result;
}
