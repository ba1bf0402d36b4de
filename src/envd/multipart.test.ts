import { expect, test } from 'vitest';
import { boundaryOf, parseDisposition, parseMultipart } from './multipart.ts';

async function* inPieces(text: string, size: number): AsyncGenerator<Buffer> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function read(text: string, size: number) {
  const parts: { name: string; filename: string | undefined; text: string }[] = [];
  for await (const part of parseMultipart(inPieces(text, size), 'XX')) {
    const chunks: Buffer[] = [];
    for await (const chunk of part.body) chunks.push(Buffer.from(chunk));
    parts.push({ name: part.name, filename: part.filename, text: Buffer.concat(chunks).toString() });
  }
  return parts;
}

const part = (disposition: string, body: string) =>
  `--XX\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${body}\r\n`;

test('parts are found whatever the pieces they arrive in', async () => {
  const body = `preamble\r\n${part('name="file"; filename="/a/b c.txt"', 'one\r\n--X\r\n-')}${part('name="other"', '')}--XX--\r\n`;
  for (let size = 1; size < body.length; size += 3) {
    expect(await read(body, size)).toEqual([
      { name: 'file', filename: '/a/b c.txt', text: 'one\r\n--X\r\n-' },
      { name: 'other', filename: undefined, text: '' },
    ]);
  }
});

test('a part that is not read is skipped', async () => {
  const body = `${part('name="a"', 'skipped')}${part('name="b"', 'read')}--XX--`;
  const names: string[] = [];
  for await (const { name } of parseMultipart(inPieces(body, 7), 'XX')) names.push(name);
  expect(names).toEqual(['a', 'b']);
});

test('a part may have no headers', async () => {
  expect(await read('--XX\r\n\r\nbody\r\n--XX--', 4)).toEqual([{ name: '', filename: undefined, text: 'body' }]);
});

test.each(['--XX\r\nContent-Disposition: form-data', part('name="a"', 'x'), 'no boundary at all', '--XXoops'])(
  'a body that breaks off is an error: %j',
  async (body) => {
    await expect(read(body, 5)).rejects.toThrow(/error parsing multipart form/);
  },
);

test('endless headers are an error', async () => {
  await expect(read(`--XX\r\nA: ${'x'.repeat(20_000)}`, 1000)).rejects.toThrow(/too long/);
});

test.each([
  ['form-data; name="file"; filename="/tmp/größe.txt"', '/tmp/größe.txt'],
  ['form-data; name=file; filename=plain', 'plain'],
  ['form-data; name="file"; filename="a%22b\\"c\\\\d\\e"', 'a"b"c\\d\\e'],
  ['form-data; name="file"; filename="x"; filename*=UTF-8\'\'%E2%82%AC.txt', '€.txt'],
  ['form-data; name="file"; filename="semi;colon.txt"', 'semi;colon.txt'],
])('file name of %j', (disposition, filename) => {
  expect(parseDisposition(disposition).get('filename')).toBe(filename);
  expect(parseDisposition(disposition).get('name')).toBe('file');
});

test('boundaries, quoted or not', () => {
  expect(boundaryOf('multipart/form-data; boundary=abc')).toBe('abc');
  expect(boundaryOf('multipart/form-data; charset=utf-8; boundary="a b"')).toBe('a b');
  expect(boundaryOf('multipart/form-data')).toBeUndefined();
});
