import { isIPv4 } from 'node:net';
import { formatIpv4, parseIpv4 } from './addresses.ts';

interface Interval {
  first: number;
  last: number;
}

const HIGHEST = 2 ** 32 - 1;

/**
 * IPv4 addresses and ranges, merged and sorted, so that a question is a binary search and the kernel is given no two that overlap. An IPv6
 * entry adds nothing: IPv6 is closed whatever a list says.
 */
export class AddressSet {
  readonly #intervals: readonly Interval[];

  /** `entries` are addresses or CIDRs. */
  constructor(entries: readonly string[]) {
    this.#intervals = merged(entries.flatMap(intervalOf));
  }

  get isEmpty(): boolean {
    return this.#intervals.length === 0;
  }

  /** Whether there is no address outside of it. */
  get isEverything(): boolean {
    const [only] = this.#intervals;
    return only !== undefined && only.first === 0 && only.last === HIGHEST;
  }

  contains(address: string): boolean {
    if (!isIPv4(address)) return false;
    const value = parseIpv4(address);
    let low = 0;
    let high = this.#intervals.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const { first, last } = this.#intervals[middle] ?? { first: 0, last: -1 };
      if (value < first) high = middle - 1;
      else if (value > last) low = middle + 1;
      else return true;
    }
    return false;
  }

  /** As elements of an nft interval set. */
  elements(): string[] {
    return this.#intervals.map(({ first, last }) =>
      first === last ? formatIpv4(first) : `${formatIpv4(first)}-${formatIpv4(last)}`,
    );
  }
}

function intervalOf(entry: string): Interval[] {
  const [address = '', prefix = '32'] = entry.split('/');
  if (!isIPv4(address)) return [];
  const size = 2 ** (32 - Number(prefix));
  const first = Math.floor(parseIpv4(address) / size) * size;
  return [{ first, last: first + size - 1 }];
}

function merged(intervals: Interval[]): Interval[] {
  const result: Interval[] = [];
  for (const interval of intervals.sort((a, b) => a.first - b.first)) {
    const before = result.at(-1);
    if (before !== undefined && interval.first <= before.last + 1) before.last = Math.max(before.last, interval.last);
    else result.push({ ...interval });
  }
  return result;
}
