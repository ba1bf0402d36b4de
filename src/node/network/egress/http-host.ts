import type { Reading } from './client-hello.ts';

const HEAD_END = '\r\n\r\n';
const REQUEST_LINE = /^[A-Z][A-Z0-9!#$%&'*+.^_`|~-]{0,31} (\S+) HTTP\/1\.[01]$/;
const FIELD = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*$/;

/**
 * The host that an HTTP/1 request is for; undefined where it names none. Read strictly: what two servers could read in two ways (two Host
 * fields, a folded line, a bare line feed, another host in the request line) counts as malformed.
 */
export function hostIn(bytes: Buffer): Reading<string | undefined> {
  const text = bytes.toString('latin1');
  const end = text.indexOf(HEAD_END);
  if (end < 0) return looksLikeRequest(text) ? { state: 'more' } : { state: 'malformed' };
  const [first = '', ...lines] = text.slice(0, end).split('\r\n');
  const target = REQUEST_LINE.exec(first)?.[1];
  if (target === undefined) return { state: 'malformed' };
  const hosts: string[] = [];
  for (const line of lines) {
    const [, name = '', value = ''] = FIELD.exec(line) ?? [];
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    if (name === '' || /[\u0000\r\n]/.test(line)) return { state: 'malformed' };
    if (name.toLowerCase() === 'host') hosts.push(withoutPort(value));
  }
  if (hosts.length > 1) return { state: 'malformed' };
  const named = /^https?:\/\/([^/?#]*)/i.exec(target)?.[1];
  if (named !== undefined && withoutPort(named) !== hosts[0]) return { state: 'malformed' };
  return { state: 'whole', value: hosts[0] || undefined };
}

/** Whether bytes so far can be the beginning of a request. */
function looksLikeRequest(text: string): boolean {
  const line = text.indexOf('\r\n');
  if (line >= 0) return REQUEST_LINE.test(text.slice(0, line));
  return /^[A-Z][A-Z0-9!#$%&'*+.^_`|~-]{0,31}( [^\s]*( [HTP/1.0]*\r?)?)?$/.test(text);
}

function withoutPort(authority: string): string {
  return authority.toLowerCase().replace(/:\d*$/, '');
}
