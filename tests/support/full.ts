/** Whether the long forms of tests are wanted: `SANDBAR_TEST_FULL=1`. */
export const FULL = process.env['SANDBAR_TEST_FULL'] === '1';

/** A count for everyday runs, and the one that proves it. */
export function times(everyday: number, full: number): number {
  return FULL ? full : everyday;
}
