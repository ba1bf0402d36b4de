import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { files, packages } from './base-recipe.ts';
import { baseTemplateKey } from './base-template.ts';
import type { Host } from './host.ts';

const host: Host = {
  distribution: 'debian',
  version: '12',
  codename: 'bookworm',
  prettyName: 'Debian 12',
  arch: 'x86_64',
};

describe('the base template', () => {
  it('has one key for one recipe on one system', () => {
    expect(baseTemplateKey(host)).toBe(baseTemplateKey({ ...host }));
    expect(baseTemplateKey({ ...host, version: '13' })).not.toBe(baseTemplateKey(host));
    expect(baseTemplateKey({ ...host, arch: 'aarch64' })).not.toBe(baseTemplateKey(host));
  });

  it('holds what the SDKs’ ready commands call', () => {
    expect(packages).toEqual(expect.arrayContaining(['iproute2', 'curl', 'procps']));
  });

  it.each(files.filter((file) => /profile|bash/.test(file.path)).map((file) => [file.path, file.text]))(
    '%s is sound and forks nothing',
    (_path, text) => {
      expect(spawnSync('bash', ['-n'], { input: text }).status).toBe(0);
      expect(text).not.toMatch(/\$\(|`|\|[^|]/);
    },
  );
});
