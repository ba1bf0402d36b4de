import { describe, expect, it } from 'vitest';
import { readLock } from './crates.ts';

describe('readLock', () => {
  it('gives the crates of the registry with their checksums, and not our own', () => {
    const lock = `version = 3

[[package]]
name = "libc"
version = "0.2.139"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "201de327"

[[package]]
name = "sandbar-agent"
version = "0.1.0"
dependencies = [
 "libc",
]
`;
    expect(readLock(lock)).toEqual([{ name: 'libc', version: '0.2.139', checksum: '201de327' }]);
  });
});
