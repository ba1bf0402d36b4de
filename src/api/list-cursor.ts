import { SandbarError } from '../core/errors.ts';

// Next tokens: base64url of `<time>__<id>`, with `__asc` behind where the list is ascending, so that a token of one order is not
// taken for one of the other.

interface Position {
  /** Milliseconds since 1970. */
  time: number;
  id: string;
}

export function encodeNextToken({ time, id }: Position, order: 'asc' | 'desc' = 'desc'): string {
  const text = `${new Date(time).toISOString()}__${id}${order === 'asc' ? '__asc' : ''}`;
  return Buffer.from(text).toString('base64').replaceAll('+', '-').replaceAll('/', '_');
}

/** Refuses (invalid) what this server did not hand out for the same order. */
export function decodeNextToken(token: string, order: 'asc' | 'desc' = 'desc'): Position {
  const text = Buffer.from(token, 'base64url').toString('utf8');
  const match = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)__([a-z0-9-]+)(__asc)?$/.exec(text);
  const [, time = '', id = '', ascending] = match ?? [];
  const position = { time: Date.parse(time), id };
  if (match === null || Number.isNaN(position.time) || (ascending !== undefined) !== (order === 'asc'))
    throw new SandbarError('invalid', 'Invalid next token');
  return position;
}
