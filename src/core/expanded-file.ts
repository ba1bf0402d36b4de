import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Readable, Transform } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';

const CHUNK_BYTES = 256 * 1024;
const GZIP = 0x1f8b;
const ZSTD = 0xfd2fb528;

/** The content of a file, expanded where it is compressed with gzip or zstd. What is damaged fails the stream. */
export async function openExpanded(file: string): Promise<Readable> {
  const expander = await expanderOf(file);
  const raw = createReadStream(file, { highWaterMark: CHUNK_BYTES });
  if (expander === undefined) return raw;
  raw.on('error', (error) => expander.destroy(error));
  expander.on('close', () => raw.destroy());
  return raw.pipe(expander);
}

async function expanderOf(file: string): Promise<Transform | undefined> {
  const handle = await open(file);
  try {
    const magic = Buffer.alloc(4);
    await handle.read(magic, 0, 4, 0);
    if (magic.readUInt16BE(0) === GZIP) return createGunzip({ chunkSize: CHUNK_BYTES });
    if (magic.readUInt32LE(0) === ZSTD) return createZstdDecompress({ chunkSize: CHUNK_BYTES });
    return undefined;
  } finally {
    await handle.close();
  }
}
