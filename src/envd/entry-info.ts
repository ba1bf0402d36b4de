import { create } from '@bufbuild/protobuf';
import { type EntryInfo, EntryInfoSchema, FileType } from '../../proto/gen/filesystem_pb.js';
import type { Entry } from '../agent/contract.ts';

const FORMAT = 0o170000;
const formats = {
  SOCKET: 0o140000,
  LINK: 0o120000,
  FILE: 0o100000,
  BLOCK: 0o060000,
  DIRECTORY: 0o040000,
  CHARACTER: 0o020000,
  FIFO: 0o010000,
} as const;

/** An entry as the protocol tells it. */
export function toEntryInfo(entry: Entry): EntryInfo {
  return create(EntryInfoSchema, {
    name: entry.name,
    type: fileTypeOf(entry.targetMode),
    path: entry.path,
    size: BigInt(entry.size),
    mode: entry.targetMode & 0o777,
    permissions: permissionsOf(entry.mode),
    owner: entry.owner,
    group: entry.group,
    modifiedTime: timestampOf(entry.mtimeNs),
    ...(entry.linkTarget !== undefined && { symlinkTarget: entry.linkTarget }),
    metadata: entry.metadata,
  });
}

/** Nanoseconds count upwards from the second, before 1970 too. */
function timestampOf(timeNs: bigint): { seconds: bigint; nanos: number } {
  const nanos = ((timeNs % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  return { seconds: (timeNs - nanos) / 1_000_000_000n, nanos: Number(nanos) };
}

/** The type of what a path leads to: a link counts as its target, one that leads nowhere as nothing. */
export function fileTypeOf(targetMode: number): FileType {
  const format = targetMode & FORMAT;
  if (format === formats.FILE) return FileType.FILE;
  if (format === formats.DIRECTORY) return FileType.DIRECTORY;
  return FileType.UNSPECIFIED;
}

/** Go's text of a file mode: letters of the kind and of the special bits, then nine of permissions. */
export function permissionsOf(mode: number): string {
  const format = mode & FORMAT;
  let prefix = '';
  if (format === formats.DIRECTORY) prefix += 'd';
  if (format === formats.LINK) prefix += 'L';
  if (format === formats.BLOCK || format === formats.CHARACTER) prefix += 'D';
  if (format === formats.FIFO) prefix += 'p';
  if (format === formats.SOCKET) prefix += 'S';
  if (mode & 0o4000) prefix += 'u';
  if (mode & 0o2000) prefix += 'g';
  if (format === formats.CHARACTER) prefix += 'c';
  if (mode & 0o1000) prefix += 't';
  const letters = 'rwxrwxrwx';
  const bits = [...letters].map((letter, index) => (mode & (0o400 >> index) ? letter : '-'));
  return (prefix || '-') + bits.join('');
}
