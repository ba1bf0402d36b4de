/**
 * Gives the memory of a buffer back that nobody uses any more; it is empty afterwards. Left to the collector, which counts such memory and has no other cause to run,
 * the pieces of a large file would have it go through the whole heap every few dozen megabytes. A buffer that shares its memory with others is left alone.
 */
export function freeMemory({ buffer, byteLength }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}
