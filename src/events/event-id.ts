import { randomBytes } from 'node:crypto';

let lastAt = 0;
let count = 0;

/** A UUID of version 7 (RFC 9562): ids of later events are greater, also within one millisecond. */
export function newEventId(at: number): string {
  count = at === lastAt ? count + 1 : 0;
  lastAt = at;
  const time = at.toString(16).padStart(12, '0');
  const order = Math.min(count, 0xfff).toString(16).padStart(3, '0');
  const random = randomBytes(8);
  random[0] = 0x80 | ((random[0] ?? 0) & 0x3f);
  const tail = random.toString('hex');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${order}-${tail.slice(0, 4)}-${tail.slice(4)}`;
}
