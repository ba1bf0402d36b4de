import { expect, test } from 'vitest';
import { Fields, FieldWriter, field } from './fields.ts';

const payloadOf = (writer: FieldWriter) => Buffer.concat(writer.pieces());

test('numbers, texts, flags and records come back as they were written', () => {
  const inner = new FieldWriter().text(field.name, 'größe').number(field.size, 2 ** 53 - 1);
  const writer = new FieldWriter()
    .number(field.handle, 7)
    .flag(field.truncate, true)
    .flag(field.recursive, false)
    .textAlways(field.arg, '')
    .textAlways(field.arg, 'two')
    .number(field.mtimeNs, 1_763_000_000_123_456_789n)
    .number(field.exitCode, -1)
    .record(field.entry, inner);
  const payload = payloadOf(writer);
  expect(payload.length).toBe(writer.size);

  const fields = new Fields(payload);
  expect(fields.number(field.handle)).toBe(7);
  expect(fields.flag(field.truncate)).toBe(true);
  expect(fields.has(field.recursive)).toBe(false);
  expect(fields.all(field.arg).map(String)).toEqual(['', 'two']);
  expect(fields.bigint(field.mtimeNs)).toBe(1_763_000_000_123_456_789n);
  expect(fields.signed(field.exitCode)).toBe(-1);
  const entry = new Fields(fields.bytes(field.entry)!);
  expect(entry.text(field.name)).toBe('größe');
  expect(entry.number(field.size)).toBe(2 ** 53 - 1);
});

test('what is missing is zero and empty', () => {
  const fields = new Fields(Buffer.alloc(0));
  expect(fields.number(field.pid)).toBe(0);
  expect(fields.text(field.tag)).toBe('');
  expect(fields.all(field.entry)).toEqual([]);
});

test('large data is not copied on the way out', () => {
  const data = Buffer.alloc(1024);
  const writer = new FieldWriter().number(field.handle, 1).bytes(field.data, [data]);
  expect(writer.pieces().some((piece) => piece === data)).toBe(true);
});

test.each([1, 4, 6])('a payload cut to %i bytes of a field is refused', (length) => {
  const payload = payloadOf(new FieldWriter().text(field.path, 'abc'));
  expect(() => new Fields(payload.subarray(0, length))).toThrow(/breaks off/);
});
