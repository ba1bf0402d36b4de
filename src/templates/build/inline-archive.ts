import { Readable } from 'node:stream';

export interface InlineFile {
  /** Relative path; directories above it need no entry of their own. */
  name: string;
  content: string | Uint8Array;
  /** Permission bits. */
  mode?: number;
  /** Ends in a directory instead of a file. */
  directory?: boolean;
}

const BLOCK = 512;
const LONGEST_NAME = 100;

/** A tar archive of files that are at hand. Names are short and ours, so the old plain form serves. */
export function inlineArchive(files: readonly InlineFile[]): Readable {
  const blocks = files.flatMap((file) => {
    const content = Buffer.from(file.directory ? '' : file.content);
    return [headerOf(file, content.length), content, Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK)];
  });
  return Readable.from([Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK)])]);
}

function headerOf(file: InlineFile, size: number): Buffer {
  const name = Buffer.from(file.name);
  if (name.length > LONGEST_NAME) throw new Error(`'${file.name}' is too long a name`);
  const header = Buffer.alloc(BLOCK);
  const octal = (value: number, digits: number) => value.toString(8).padStart(digits, '0');
  header.set(name, 0);
  header.write(octal(file.mode ?? (file.directory ? 0o755 : 0o644), 7), 100);
  header.write(octal(0, 7), 108);
  header.write(octal(0, 7), 116);
  header.write(octal(size, 11), 124);
  // A fixed time: the same files are the same archive.
  header.write(octal(0, 11), 136);
  header.write(file.directory ? '5' : '0', 156);
  header.write('ustar\x0000', 257);
  header.fill(' ', 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octal(sum, 6)}\0 `, 148);
  return header;
}
