import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { settings } from '../core/config.ts';
import { runCli } from './cli.ts';

describe('the command line', () => {
  let output: string[];
  let errors: string[];
  beforeEach(() => {
    output = [];
    errors = [];
    vi.spyOn(console, 'log').mockImplementation((line) => void output.push(line));
    vi.spyOn(console, 'error').mockImplementation((line) => void errors.push(line));
  });
  afterEach(() => vi.restoreAllMocks());

  it.each([[[]], [['help']], [['--help']], [['serve', '-h']]])('prints help for %j', async (argv) => {
    expect(await runCli(argv)).toBe(0);
    for (const setting of Object.values(settings)) expect(output.join('\n')).toContain(setting.env);
  });

  it('prints its version', async () => {
    expect(await runCli(['version'])).toBe(0);
    expect(output[0]).toMatch(/^sandbar \d+\.\d+\.\d+/);
  });

  it.each([
    [['fly'], /unknown command 'fly'/],
    [['toString'], /unknown command 'toString'/],
    [['serve', '--bogus'], /Unknown option '--bogus'/],
    [['serve', 'now'], /unexpected 'now' after 'sandbar serve'/],
    [['keys'], /create, list or revoke/],
    [['keys', 'revoke'], /needs the id of a key/],
    [['keys', 'list', 'abc'], /unexpected 'abc'/],
    [['keys', 'list', '--name', 'abc'], /--name goes with/],
    [['doctor', '--port', 'x'], /SANDBAR_PORT must be a whole number/],
  ])('refuses %j as a wrong usage', async (argv, message) => {
    expect(await runCli(argv)).toBe(2);
    expect(errors.join('\n')).toMatch(message);
  });
});
