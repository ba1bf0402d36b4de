import type { IncomingHttpHeaders } from 'node:http';
import { SandbarError } from '../core/errors.ts';
import { headerOf } from '../core/http.ts';

const HEADER_PREFIX = 'x-metadata-';
/** Prefix of the attributes that keep metadata; it counts towards the limit. */
const ATTRIBUTE_PREFIX_BYTES = 'user.e2b.'.length;
/** Room that is left for a key in the name of an attribute, which the kernel limits to 255 bytes. */
const MAX_KEY_BYTES = 246;
const MAX_TOTAL_BYTES = 4096;

/** What the `X-Metadata-*` headers of an upload ask to be stored with the file, by key. */
export function metadataFromHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const metadata: Record<string, string> = {};
  let total = 0;
  for (const name of Object.keys(headers)) {
    if (!name.startsWith(HEADER_PREFIX)) continue;
    const key = name.slice(HEADER_PREFIX.length);
    const value = headerOf(headers, name) ?? '';
    if (key === '' || key.length > MAX_KEY_BYTES) {
      throw new SandbarError('invalid', `metadata key must have 1 to ${MAX_KEY_BYTES} bytes: '${key.slice(0, 64)}'`);
    }
    if (!/^[\x20-\x7e]*$/.test(key + value)) {
      throw new SandbarError('invalid', `metadata '${key}' must be printable ASCII`);
    }
    total += ATTRIBUTE_PREFIX_BYTES + key.length + value.length;
    metadata[key] = value;
  }
  if (total > MAX_TOTAL_BYTES) {
    throw new SandbarError('invalid', `metadata is too large: ${total} bytes, at most ${MAX_TOTAL_BYTES}`);
  }
  return metadata;
}
