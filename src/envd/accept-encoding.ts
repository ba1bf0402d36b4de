export type ContentCoding = 'gzip' | 'identity';

/**
 * The coding a client likes best among gzip and identity (RFC 9110 §12.5.3): the highest weight wins, gzip on a tie; undefined
 * when it takes neither.
 */
export function chooseCoding(acceptEncoding: string | undefined): ContentCoding | undefined {
  const weights = parse(acceptEncoding ?? '');
  const any = weights.get('*');
  const gzip = weights.get('gzip') ?? weights.get('x-gzip') ?? any ?? 0;
  // Identity is acceptable unless it is refused, by name or by `*;q=0`; when it is not named it is the last resort.
  const named = weights.get('identity');
  const identity = named ?? any;
  if (identity === undefined) return gzip > 0 ? 'gzip' : 'identity';
  // Under a bare `*` both are equal, and what is not compressed is cheaper for both sides.
  if (named === undefined && !weights.has('gzip') && identity > 0) return 'identity';
  if (gzip > 0 && gzip >= identity) return 'gzip';
  return identity > 0 ? 'identity' : undefined;
}

/** Whether a client takes an answer as it is. */
export function acceptsIdentity(acceptEncoding: string | undefined): boolean {
  const weights = parse(acceptEncoding ?? '');
  return (weights.get('identity') ?? weights.get('*') ?? 1) > 0;
}

function parse(value: string): Map<string, number> {
  const weights = new Map<string, number>();
  for (const item of value.split(',')) {
    const [coding = '', ...parameters] = item.split(';').map((part) => part.trim().toLowerCase());
    if (coding === '') continue;
    const weight = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
    const q = weight === undefined ? 1 : Number(weight);
    // A weight that is none says nothing about what the client wants: the item is left out.
    if (q >= 0 && q <= 1) weights.set(coding, q);
  }
  return weights;
}
