import { describe, expect, it } from 'vitest';
import { freeMemory } from './free-memory.ts';

describe('freeing memory', () => {
  it('empties a buffer that has its memory to itself', () => {
    const own = Buffer.from(new ArrayBuffer(65_536));
    freeMemory(own);
    expect([own.length, own.buffer.byteLength]).toEqual([0, 0]);
  });

  it('leaves one alone that shares it', () => {
    const whole = Buffer.from(new ArrayBuffer(64)).fill(7);
    for (const part of [whole.subarray(0, 63), whole.subarray(1)]) freeMemory(part);
    expect(whole).toEqual(Buffer.alloc(64, 7));
    const shared = new Uint8Array(new SharedArrayBuffer(8));
    freeMemory(shared);
    expect(shared.length).toBe(8);
  });
});
