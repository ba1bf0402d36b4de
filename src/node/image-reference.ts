import { isIP } from 'node:net';
import { SandbarError } from '../core/errors.ts';

export interface ImageReference {
  /** In full: registry, path, tag or digest. */
  text: string;
  /** Registry as credentials name it. */
  registry: string;
  /** On this machine or a private network, where plain HTTP and certificates that nobody signed are usual. */
  isLocal: boolean;
}

const HUB = 'docker.io';
const PATH = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/;
const TAG = /^[\w][\w.-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const REGISTRY = /^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?$/;

/** `[registry/]path[:tag][@digest]`, as Docker reads it. */
export function parseImageReference(image: string): ImageReference {
  const refuse = () => new SandbarError('invalid', `'${image}' is not the name of an image`);
  const [named = '', digest, ...rest] = image
    .trim()
    .replace(/^docker:\/\//, '')
    .split('@');
  if (rest.length > 0 || (digest !== undefined && !DIGEST.test(digest))) throw refuse();
  const slash = named.indexOf('/');
  const first = slash === -1 ? '' : named.slice(0, slash);
  const hasRegistry = /[.:[]/.test(first) || first === 'localhost';
  const registry = hasRegistry ? first : HUB;
  const remainder = hasRegistry ? named.slice(slash + 1) : named;
  const colon = remainder.lastIndexOf(':');
  const path = colon === -1 ? remainder : remainder.slice(0, colon);
  const tag = colon === -1 ? undefined : remainder.slice(colon + 1);
  const full = registry === HUB && !path.includes('/') ? `library/${path}` : path;
  if (!PATH.test(full) || !REGISTRY.test(registry) || (tag !== undefined && !TAG.test(tag))) throw refuse();
  // With both, the digest is what counts, and skopeo takes only one.
  const version = digest === undefined ? `:${tag ?? 'latest'}` : `@${digest}`;
  return { text: `${registry}/${full}${version}`, registry, isLocal: isLocalHost(registry) };
}

function isLocalHost(registry: string): boolean {
  const host = registry
    .replace(/:\d+$/, '')
    .replace(/^\[|\]$/g, '')
    .toLowerCase();
  if (host === 'localhost' || host.endsWith('.localhost')) return true;
  if (isIP(host) === 6) return host === '::1' || /^f[cd]/.test(host);
  if (isIP(host) !== 4) return false;
  const [a = 0, b = 0] = host.split('.').map(Number);
  return a === 127 || a === 10 || (a === 172 && b >= 16 && b < 32) || (a === 192 && b === 168);
}
