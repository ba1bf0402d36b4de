import type { CompiledPolicy, SocksServer } from '../policy.ts';
import type { Opening } from './opening.ts';

export interface Destination {
  address: string;
  port: number;
}

/** What becomes of a connection that came to the egress proxy. */
export type Decision = { verdict: 'refuse' } | ({ verdict: 'pass' } & Way);

/** How a connection goes on. */
export interface Way {
  /** Name to dial; undefined: the address that the sandbox dialled. */
  name: string | undefined;
  /** The name itself is allowed; otherwise every address it leads to must be. */
  byName: boolean;
  /** Headers to set on its requests. */
  headers: Record<string, string> | undefined;
  via: SocksServer | undefined;
}

/**
 * Allowed is what a rule allows by name, or by the address that the sandbox dialled. A connection that is allowed by its name goes to where the
 * machine itself finds the name, never to the address the sandbox says it has: else any address would do with an allowed name beside it.
 */
export function decide(
  policy: CompiledPolicy,
  destination: Destination,
  opening: Pick<Opening, 'kind' | 'name'>,
): Decision {
  const { name } = opening;
  const byName = name !== undefined && policy.permitsName(name);
  if (!byName && !policy.permitsAddress(destination.address)) return { verdict: 'refuse' };
  const headers = name === undefined ? undefined : policy.headersFor(name);
  return {
    verdict: 'pass',
    name: byName || headers !== undefined ? name : undefined,
    byName,
    headers,
    via: policy.source.egressProxy,
  };
}
