import { describe, expect, it } from 'vitest';
import { expandVariables } from './variables.ts';

describe('variables in build steps', () => {
  const variables = { NAME: 'x', EMPTY: '', DIR: '/opt/app' };
  it.each([
    ['plain', 'plain'],
    ['$NAME and ${NAME}s', 'x and xs'],
    ['$MISSING|${MISSING}', '|'],
    ['${MISSING:-other}', 'other'],
    ['${EMPTY:-other}', 'other'],
    ['${EMPTY-other}', ''],
    ['${NAME:+yes}${MISSING:+no}', 'yes'],
    ['${MISSING:-${NAME}y}', 'xy'],
    ['\\$NAME', '$NAME'],
    ['a\\nb', 'a\\nb'],
    ['$DIR/bin:$PATH', '/opt/app/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
    ['$(date) $5 $', '$(date) $5 $'],
  ])('%s', (text, expected) => {
    expect(expandVariables(text, variables)).toBe(expected);
  });
});
