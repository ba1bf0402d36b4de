const OCTET_STREAM = 'application/octet-stream';
const TEXT = 'text/plain; charset=utf-8';

const byExtension: Record<string, string> = {
  avif: 'image/avif',
  bmp: 'image/bmp',
  css: 'text/css; charset=utf-8',
  csv: 'text/csv; charset=utf-8',
  gif: 'image/gif',
  gz: 'application/gzip',
  htm: 'text/html; charset=utf-8',
  html: 'text/html; charset=utf-8',
  ico: 'image/vnd.microsoft.icon',
  jpeg: 'image/jpeg',
  jpg: 'image/jpeg',
  js: 'text/javascript; charset=utf-8',
  json: 'application/json',
  md: 'text/markdown; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
  mp3: 'audio/mpeg',
  mp4: 'video/mp4',
  pdf: 'application/pdf',
  png: 'image/png',
  svg: 'image/svg+xml',
  tar: 'application/x-tar',
  txt: TEXT,
  wasm: 'application/wasm',
  wav: 'audio/wav',
  webm: 'video/webm',
  webp: 'image/webp',
  xml: 'text/xml; charset=utf-8',
  zip: 'application/zip',
};

/** Bytes of a file that are enough to guess its type. */
export const SNIFF_BYTES = 512;

/** The type that a name's extension stands for. */
export function contentTypeByName(name: string): string | undefined {
  const dot = name.lastIndexOf('.');
  return dot < 0 ? undefined : byExtension[name.slice(dot + 1).toLowerCase()];
}

const signatures: readonly { at: number; bytes: string; type: string }[] = [
  { at: 0, bytes: '%PDF-', type: 'application/pdf' },
  { at: 0, bytes: '\x89PNG\r\n\x1a\n', type: 'image/png' },
  { at: 0, bytes: '\xff\xd8\xff', type: 'image/jpeg' },
  { at: 0, bytes: 'GIF87a', type: 'image/gif' },
  { at: 0, bytes: 'GIF89a', type: 'image/gif' },
  { at: 8, bytes: 'WEBPVP', type: 'image/webp' },
  { at: 0, bytes: 'BM', type: 'image/bmp' },
  { at: 0, bytes: 'PK\x03\x04', type: 'application/zip' },
  { at: 0, bytes: '\x1f\x8b\x08', type: 'application/x-gzip' },
  { at: 0, bytes: '\0asm', type: 'application/wasm' },
  { at: 4, bytes: 'ftyp', type: 'video/mp4' },
  { at: 0, bytes: '\x1aE\xdf\xa3', type: 'video/webm' },
  { at: 0, bytes: 'OggS\0', type: 'application/ogg' },
  { at: 0, bytes: 'ID3', type: 'audio/mpeg' },
  { at: 0, bytes: '\xef\xbb\xbf', type: TEXT },
  { at: 0, bytes: '\xfe\xff', type: 'text/plain; charset=utf-16be' },
  { at: 0, bytes: '\xff\xfe', type: 'text/plain; charset=utf-16le' },
];

const htmlStart = /^\s*<(!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|!--)[\s>]/i;

/** The type that the first bytes of a file speak for. */
export function sniffContentType(head: Buffer): string {
  const text = head.subarray(0, SNIFF_BYTES).toString('latin1');
  const found = signatures.find(({ at, bytes }) => text.startsWith(bytes, at));
  if (found) return found.type;
  if (htmlStart.test(text)) return 'text/html; charset=utf-8';
  if (/^\s*<\?xml/.test(text)) return 'text/xml; charset=utf-8';
  return isBinary(text) ? OCTET_STREAM : TEXT;
}

/** `inline` with the file's name, quoted or encoded where HTTP asks for it (RFC 6266, RFC 8187). */
export function contentDisposition(name: string): string {
  if (/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) return `inline; filename=${name}`;
  if (/^[\x20-\x7e]+$/.test(name)) return `inline; filename="${name.replace(/["\\]/g, '\\$&')}"`;
  const encoded = encodeURIComponent(name).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `inline; filename*=utf-8''${encoded}`;
}

/** Control characters that no text has. */
function isBinary(text: string): boolean {
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    const control = code < 0x20 && !(code >= 0x09 && code <= 0x0d && code !== 0x0b) && code !== 0x1b;
    if (control) return true;
  }
  return false;
}
