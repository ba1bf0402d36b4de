import { describe, expect, it } from 'vitest';
import { parseIndexTargets, sourceLine } from './apt-sources.ts';
import { withBackports } from './private-apt.ts';

const debian = { distribution: 'debian', codename: 'bookworm' };
const targets = `http://mirror.example/debian|bookworm|main|Debian|Packages
http://mirror.example/debian|bookworm|main|Debian|DEP-11
http://mirror.example/debian|bookworm|contrib|Debian|Packages
http://mirror.example/debian-security|bookworm-security|main|Debian|Packages
http://mirror.example/debian|bookworm-updates|main|Debian|Packages
https://tools.example/apt|bookworm|main|Tools|Packages
https://pg.example/apt|bookworm-pgdg|main|pg|Packages
`;

describe('the host’s apt sources', () => {
  it('are those of the distribution alone: release, updates, security', () => {
    expect(parseIndexTargets(targets, debian).map(sourceLine)).toEqual([
      'deb http://mirror.example/debian bookworm main',
      'deb http://mirror.example/debian bookworm-updates main',
      'deb http://mirror.example/debian-security bookworm-security main',
    ]);
  });

  it('join the components of one suite', () => {
    const text = ['main', 'universe', 'multiverse']
      .map((component) => `http://m.example/ubuntu|noble|${component}|Ubuntu|Packages`)
      .join('\n');
    expect(parseIndexTargets(text, { distribution: 'ubuntu', codename: 'noble' })).toEqual([
      { uri: 'http://m.example/ubuntu', suite: 'noble', components: ['main', 'universe'] },
    ]);
  });

  it('give the backports their mirror', () => {
    const sources = withBackports(parseIndexTargets(targets, debian), debian);
    expect(sources.map(sourceLine)).toContain('deb http://mirror.example/debian bookworm-backports main');
    expect(withBackports([], debian)).toEqual([]);
  });
});
