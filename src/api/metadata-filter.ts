/**
 * The pairs of a `metadata` query parameter, already decoded once as every query is. SDKs percent-encode keys and values, join
 * them as a query string (which encodes again) and put that into the query: two layers are left. People who write the
 * parameter by hand encode once or not at all, so what does not decode is taken as it stands.
 */
export function parseMetadataFilter(text: string | undefined): Record<string, string> {
  if (text === undefined || text === '') return {};
  // Split first, as an encoded & or = belongs to a key or value; unless the separators themselves are encoded.
  const joined = text.includes('=') ? text : decoded(text);
  const pairs = joined
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair): [string, string] => {
      const equals = pair.indexOf('=');
      return equals === -1 ? [pair, ''] : [pair.slice(0, equals), pair.slice(equals + 1)];
    });
  return Object.fromEntries(pairs.map(([key, value]) => [decoded(decoded(key)), decoded(decoded(value))]));
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
