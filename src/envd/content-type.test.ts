import { expect, test } from 'vitest';
import { contentDisposition, contentTypeByName, sniffContentType } from './content-type.ts';

test.each([
  ['a.json', 'application/json'],
  ['a.HTML', 'text/html; charset=utf-8'],
  ['archive.tar.gz', 'application/gzip'],
  ['Makefile', undefined],
  ['.bashrc', undefined],
])('%s is %s by its name', (name, type) => {
  expect(contentTypeByName(name)).toBe(type);
});

test.each([
  ['\x89PNG\r\n\x1a\n…', 'image/png'],
  ['  <!DOCTYPE HTML>\n', 'text/html; charset=utf-8'],
  ['hello\nworld\t!', 'text/plain; charset=utf-8'],
  ['', 'text/plain; charset=utf-8'],
  ['a\0b', 'application/octet-stream'],
])('%j is %s by its content', (head, type) => {
  expect(sniffContentType(Buffer.from(head, 'latin1'))).toBe(type);
});

test.each([
  ['plain.txt', 'inline; filename=plain.txt'],
  ['with space.txt', 'inline; filename="with space.txt"'],
  ['a"b\\c', 'inline; filename="a\\"b\\\\c"'],
  ['größe.txt', "inline; filename*=utf-8''gr%C3%B6%C3%9Fe.txt"],
  ['line\nbreak', "inline; filename*=utf-8''line%0Abreak"],
])('the disposition of %j', (name, header) => {
  expect(contentDisposition(name)).toBe(header);
});
