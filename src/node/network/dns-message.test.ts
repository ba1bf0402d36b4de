import { expect, test } from 'vitest';
import { questionOf, refusalOf } from './dns-message.ts';

/** A query with one question, as a resolver in a sandbox sends it. */
function query(labels: string[], { id = 0x1234, flags = 0x0100, questions = 1, tail = '00010001' } = {}): Buffer {
  const header = Buffer.alloc(12);
  header.writeUInt16BE(id, 0);
  header.writeUInt16BE(flags, 2);
  header.writeUInt16BE(questions, 4);
  const name = labels.map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label, 'latin1')]));
  return Buffer.concat([header, ...name, Buffer.from([0]), Buffer.from(tail, 'hex')]);
}

test('the name of a question, in lower case', () => {
  expect(questionOf(query(['API', 'Example', 'com']))?.name).toBe('api.example.com');
  expect(questionOf(query([]))?.name).toBe('');
});

test.each([
  ['an answer', query(['a'], { flags: 0x8180 })],
  ['an update', query(['a'], { flags: 0x2800 })],
  ['two questions', query(['a'], { questions: 2 })],
  ['a label with a dot', query(['evil.com\0', 'example.com'])],
  ['a question cut short', query(['a'], { tail: '0001' })],
  ['a pointer', Buffer.concat([query([]).subarray(0, 12), Buffer.from('c00c00010001', 'hex')])],
  ['a label longer than the message', query(['aaaa']).subarray(0, 15)],
  ['nothing', Buffer.alloc(0)],
])('%s is no question', (_, message) => {
  expect(questionOf(message)).toBeUndefined();
});

test('a refusal repeats the question and nothing else', () => {
  const asked = Buffer.concat([query(['a', 'test']), Buffer.from('0000291000000000000000', 'hex')]);
  const question = questionOf(asked)!;
  const answer = refusalOf(asked, question);
  expect(answer.readUInt16BE(0)).toBe(0x1234);
  expect(answer.readUInt16BE(2)).toBe(0x8185);
  expect([4, 6, 8, 10].map((at) => answer.readUInt16BE(at))).toEqual([1, 0, 0, 0]);
  expect(answer.subarray(12)).toEqual(asked.subarray(12, question.end));
});
