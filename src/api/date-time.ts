/** Milliseconds since 1970 as the wire writes times. */
export function dateTime(time: number): string {
  return new Date(time).toISOString();
}

/**
 * An RFC 3339 time as the first whole millisecond that is not before it. Ours are whole, so `time >= firstMillisecond(x)` is
 * right for an x with microseconds, which Date.parse cuts off.
 */
export function firstMillisecond(text: string): number {
  const beyond = /\.\d{3}(\d+)/.exec(text)?.[1] ?? '';
  return Date.parse(text) + (/[1-9]/.test(beyond) ? 1 : 0);
}
