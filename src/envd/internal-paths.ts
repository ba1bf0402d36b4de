/** Paths of the daemon that only the control plane may call. They do not exist here, and are refused by name. */
const paths = new Set(['/init', '/freeze', '/unfreeze', '/collapse', '/fsfreeze', '/fsthaw', '/upgrade']);

/** The answer to a request for a path that is reserved, or undefined. */
export function internalPathAnswer(path: string): { message: string; path: string; code: number } | undefined {
  const plain = path.replace(/\/{2,}/g, '/').replace(/(.)\/$/, '$1');
  if (!paths.has(plain)) return undefined;
  const message = 'This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL';
  return { message, path, code: 404 };
}
