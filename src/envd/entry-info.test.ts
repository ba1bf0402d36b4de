import { toJson } from '@bufbuild/protobuf';
import { expect, test } from 'vitest';
import { EntryInfoSchema } from '../../proto/gen/filesystem_pb.js';
import type { Entry } from '../agent/contract.ts';
import { permissionsOf, toEntryInfo } from './entry-info.ts';

const entry: Entry = {
  name: 'a.txt',
  path: '/home/user/a.txt',
  size: 5,
  mode: 0o100644,
  targetMode: 0o100644,
  owner: 'user',
  group: 'user',
  mtimeNs: 1_700_000_000_123_000_000n,
  linkTarget: undefined,
  metadata: {},
};
const json = (change: Partial<Entry>) => toJson(EntryInfoSchema, toEntryInfo({ ...entry, ...change }));

test.each([
  [0o100644, '-rw-r--r--'],
  [0o040755, 'drwxr-xr-x'],
  [0o120777, 'Lrwxrwxrwx'],
  [0o041777, 'dtrwxrwxrwx'],
  [0o104755, 'urwxr-xr-x'],
  [0o102755, 'grwxr-xr-x'],
  [0o020620, 'Dcrw--w----'],
  [0o060660, 'Drw-rw----'],
  [0o010644, 'prw-r--r--'],
  [0o140755, 'Srwxr-xr-x'],
])('mode %o reads %s', (mode, text) => {
  expect(permissionsOf(mode)).toBe(text);
});

test('a file', () => {
  expect(json({})).toEqual({
    name: 'a.txt',
    type: 'FILE_TYPE_FILE',
    path: '/home/user/a.txt',
    size: '5',
    mode: 0o644,
    permissions: '-rw-r--r--',
    owner: 'user',
    group: 'user',
    modifiedTime: '2023-11-14T22:13:20.123Z',
  });
});

test('a link has the type and mode of its target and the size of its own', () => {
  expect(json({ mode: 0o120777, targetMode: 0o040755, linkTarget: '/etc' })).toMatchObject({
    type: 'FILE_TYPE_DIRECTORY',
    mode: 0o755,
    permissions: 'Lrwxrwxrwx',
    symlinkTarget: '/etc',
  });
});

test('a broken link has no type', () => {
  const broken = json({ mode: 0o120777, targetMode: 0o120777, linkTarget: '/home/user/a.txt' });
  expect(broken).toMatchObject({ symlinkTarget: '/home/user/a.txt' });
  expect(broken).not.toHaveProperty('type');
});

test('a time before 1970', () => {
  expect(json({ mtimeNs: -1n })).toMatchObject({ modifiedTime: '1969-12-31T23:59:59.999999999Z' });
});
