import { describe, expect, it } from 'vitest';
import { isSupported, parseOsRelease } from './host.ts';

describe('the host system', () => {
  it('is read from os-release with and without quotes', () => {
    const text = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n# comment\nEMPTY=\n';
    expect(parseOsRelease(text)).toEqual({
      PRETTY_NAME: 'Debian GNU/Linux 12 (bookworm)',
      ID: 'debian',
      VERSION_ID: '12',
      EMPTY: '',
    });
  });

  it.each([
    ['debian', '12', true],
    ['debian', '13', true],
    ['ubuntu', '22.04', true],
    ['ubuntu', '24.04', true],
    ['ubuntu', '23.10', false],
    ['fedora', '42', false],
  ])('%s %s is handled: %s', (distribution, version, expected) => {
    expect(isSupported({ distribution, version, codename: '', prettyName: '', arch: 'x86_64' })).toBe(expected);
  });
});
