import { describe, expect, it } from 'vitest';
import { type Welcome, welcomeText } from './welcome.ts';

const KEY = `e2b_${'ab'.repeat(20)}`;
const first: Welcome = {
  config: { host: '0.0.0.0', stateDir: '/var/lib/sandbar' },
  port: 7070,
  tls: false,
  runtime: 'gvisor',
  runscOrigin: 'official release',
  apiKey: KEY,
};

describe('welcomeText', () => {
  it('gives a new user the variables and a program to paste', () => {
    const text = welcomeText(first);
    expect(text).toContain('export E2B_API_URL=http://localhost:7070\n');
    expect(text).toContain('export E2B_SANDBOX_URL=http://localhost:7070\n');
    expect(text).toContain(`export E2B_API_KEY=${KEY}\n`);
    expect(text).toContain("import { Sandbox } from 'e2b';");
  });

  it('says which runtime serves and where runsc came from', () => {
    expect(welcomeText(first)).toContain('gvisor (runsc, official release)');
  });

  it('says plainly that the container runtime serves for want of runsc', () => {
    const text = welcomeText({ ...first, runtime: 'container', runscOrigin: undefined });
    expect(text).toMatch(/container \(no runsc could be had.*share the host kernel/);
  });

  it('shows no key on later starts', () => {
    const text = welcomeText({ ...first, apiKey: undefined });
    expect(text).not.toContain('e2b_');
    expect(text).toContain('keys create');
  });

  it('uses https and the named address where they are set', () => {
    const text = welcomeText({ ...first, tls: true, port: 443, config: { host: '::1', stateDir: '/s' } });
    expect(text).toContain('E2B_API_URL=https://[::1]:443\n');
  });
});
