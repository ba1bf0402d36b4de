import { SandbarError } from '../../core/errors.ts';

/** A slot's pair of addresses: the machine's end and the sandbox's, the two usable ones of a /30. */
export interface SlotAddresses {
  host: string;
  guest: string;
}

/** An IPv4 range cut into slots of four addresses. */
export class AddressRange {
  readonly cidr: string;
  readonly slotCount: number;
  readonly #base: number;

  constructor(cidr: string) {
    const [address = '', prefix = ''] = cidr.split('/');
    const bits = Number(prefix);
    const size = 2 ** (32 - bits);
    this.#base = Math.floor(parseIpv4(address) / size) * size;
    this.cidr = `${formatIpv4(this.#base)}/${bits}`;
    this.slotCount = size / 4;
  }

  slot(index: number): SlotAddresses {
    if (index < 0 || index >= this.slotCount) throw new SandbarError('exhausted', `no network slot ${index}`);
    return { host: formatIpv4(this.#base + index * 4 + 1), guest: formatIpv4(this.#base + index * 4 + 2) };
  }

  overlaps(other: AddressRange): boolean {
    const end = (range: AddressRange) => range.#base + range.slotCount * 4;
    return this.#base < end(other) && other.#base < end(this);
  }
}

export function parseIpv4(text: string): number {
  const octets = text.split('.').map(Number);
  if (octets.length !== 4 || octets.some((octet) => !Number.isInteger(octet) || octet < 0 || octet > 255))
    throw new SandbarError('invalid', `'${text}' is not an IPv4 address`);
  return octets.reduce((value, octet) => value * 256 + octet, 0);
}

export function formatIpv4(value: number): string {
  return [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join('.');
}
