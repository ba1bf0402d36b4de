import { expect, it } from 'vitest';
import { parseTemplateReference, referencePath } from './template-reference.ts';

it.each([
  ['base', undefined, 'base', undefined],
  ['  Base  ', undefined, 'base', undefined],
  ['my-team/my_app:v1.2', 'my-team', 'my_app', 'v1.2'],
  ['base:default', undefined, 'base', 'default'],
  ['abcdefghij0123456789:prod', undefined, 'abcdefghij0123456789', 'prod'],
])('reads %s', (text, namespace, name, tag) => {
  expect(parseTemplateReference(text)).toEqual({ namespace, name, tag });
});

it.each([
  '',
  ' ',
  'a b',
  '/a',
  'a/',
  'a/b/c',
  'a:',
  'a:b:c',
  'ä',
  'a:b/c',
  'a:0f8fad5b-d9cb-469f-a165-70867728950e',
  'x'.repeat(129),
])('refuses %j', (text) => {
  expect(() => parseTemplateReference(text)).toThrow(/^invalid template reference/);
});

it('names a reference without its tag', () => {
  expect(referencePath(parseTemplateReference('Team/App:v1'))).toBe('team/app');
  expect(referencePath(parseTemplateReference('app:v1'))).toBe('app');
});
