import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sourceHash } from './programs.ts';

describe('the hash of a crate’s sources', () => {
  let crate: string;
  const put = (file: string, text: string) => {
    mkdirSync(path.dirname(path.join(crate, file)), { recursive: true });
    writeFileSync(path.join(crate, file), text);
  };
  beforeEach(() => {
    crate = mkdtempSync(path.join(tmpdir(), 'sandbar-crate-'));
    put('Cargo.toml', '[package]');
    put('src/main.rs', 'fn main() {}');
  });
  afterEach(() => rmSync(crate, { recursive: true }));

  it('changes with a source', async () => {
    const before = await sourceHash(crate);
    put('src/deep/module.rs', '');
    expect(await sourceHash(crate)).not.toBe(before);
  });

  it('does not change with what cargo made, or with tests', async () => {
    const before = await sourceHash(crate);
    put('target/release/sandbar-agent', 'binary');
    put('tests/src/main.rs', '');
    expect(await sourceHash(crate)).toBe(before);
  });

  it('needs a crate', async () => {
    await expect(sourceHash(path.join(crate, 'nowhere'))).rejects.toThrow(/no Cargo.toml/);
  });
});
