import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { lockedCrates, setUpCrates } from './crates.ts';

const LOCK = `version = 3

[[package]]
name = "libc"
version = "0.2.139"
source = "registry+https://example.test/index"
checksum = "201de327"

[[package]]
name = "sandbar-agent"
version = "0.1.0"
dependencies = [
 "libc",
]
`;

describe('crates', () => {
  let root = '';
  let config = '';
  beforeEach(() => {
    root = mkdtempSync(path.join(tmpdir(), 'sandbar-crates-'));
    config = path.join(root, '.cargo/config.toml');
    mkdirSync(path.join(root, 'agent'));
    writeFileSync(path.join(root, 'agent/Cargo.lock'), LOCK);
  });
  afterEach(() => rmSync(root, { recursive: true }));

  function cargo(version: string): string {
    const file = path.join(root, 'cargo');
    writeFileSync(file, `#!/bin/sh\necho cargo ${version}\n`, { mode: 0o755 });
    return file;
  }

  it('of a lock are those of the registry, not our own', () => {
    expect(lockedCrates(LOCK)).toEqual(['libc-0.2.139']);
  });

  it("come from the distribution's packages for an old cargo, and from its registry once it is new", async () => {
    mkdirSync(path.join(root, 'packaged/libc-0.2.139'), { recursive: true });
    await setUpCrates(root, cargo('1.65.0'), path.join(root, 'packaged'));
    expect(readFileSync(config, 'utf8')).toContain(`directory = "${path.join(root, 'packaged')}"`);
    await setUpCrates(root, cargo('1.85.0'), path.join(root, 'packaged'));
    expect(existsSync(config)).toBe(false);
  });

  it("are left to cargo where one is not packaged, or the configuration is the user's", async () => {
    await setUpCrates(root, cargo('1.65.0'), path.join(root, 'packaged'));
    expect(existsSync(config)).toBe(false);
    mkdirSync(path.join(root, '.cargo'));
    writeFileSync(config, '[net]\noffline = true\n');
    await setUpCrates(root, cargo('1.85.0'), path.join(root, 'packaged'));
    expect(readFileSync(config, 'utf8')).toContain('offline');
  });
});
