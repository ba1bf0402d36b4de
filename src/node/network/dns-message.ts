/** The header of a DNS message (RFC 1035 §4.1.1). */
const HEADER_BYTES = 12;
const REFUSED = 5;

export interface Question {
  /** Lower case, without the last dot; empty for the root. */
  name: string;
  /** Where the bytes of the question end in the message. */
  end: number;
}

/** The question of a plain query that asks exactly one; undefined for anything else. */
export function questionOf(message: Buffer): Question | undefined {
  if (message.length < HEADER_BYTES) return undefined;
  const flags = message.readUInt16BE(2);
  const isQuery = (flags & 0xf800) === 0;
  if (!isQuery || message.readUInt16BE(4) !== 1) return undefined;
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (;;) {
    const length = message[at];
    // 64 and more are pointers to elsewhere in the message, which no question needs.
    if (length === undefined || length > 63) return undefined;
    at++;
    if (length === 0) break;
    const label = message.subarray(at, at + length).toString('latin1');
    // A dot inside of a label would make one name look like another.
    if (label.length < length || label.includes('.')) return undefined;
    labels.push(label);
    at += length;
  }
  // Type and class.
  const end = at + 4;
  return end > message.length ? undefined : { name: labels.join('.').toLowerCase(), end };
}

/** The answer to a query that is not served: refused, without any record. */
export function refusalOf(query: Buffer, question: Question): Buffer {
  const answer = Buffer.from(query.subarray(0, question.end));
  const recursionDesired = query.readUInt16BE(2) & 0x0100;
  answer.writeUInt16BE(0x8080 | recursionDesired | REFUSED, 2);
  // One question, no answers, authorities or additions.
  answer.writeUInt16BE(1, 4);
  answer.fill(0, 6, HEADER_BYTES);
  return answer;
}
