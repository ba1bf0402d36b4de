import { createHash, timingSafeEqual } from 'node:crypto';

/** Whether a secret that was presented is one of those accepted. The time taken tells neither which nor how much of it matched. */
export function matchesAny(presented: string, accepted: readonly string[]): boolean {
  const digest = digestOf(presented);
  let found = false;
  for (const secret of accepted) {
    // Digests have one length, which timingSafeEqual asks for; every one is compared, found or not.
    if (timingSafeEqual(digest, digestOf(secret))) found = true;
  }
  return found;
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
