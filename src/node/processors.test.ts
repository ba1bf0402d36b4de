import { describe, expect, it } from 'vitest';
import { Processors } from './processors.ts';

describe('the processors', () => {
  const times = { idle: 0, total: 0 };
  const processors = new Processors(() => ({ ...times }));
  const pass = (idle: number, total: number) => {
    times.idle += idle;
    times.total += total;
  };

  it('count as busy until a moment has been looked at', () => {
    expect(processors.isBusy(10_000)).toBe(true);
    pass(5, 10);
    expect(processors.isBusy(10_060)).toBe(false);
  });

  it('are busy when hardly any time was left over', () => {
    pass(1, 10);
    expect(processors.isBusy(10_120)).toBe(true);
    pass(2, 10);
    expect(processors.isBusy(10_180)).toBe(false);
  });

  it('are not looked at again at once', () => {
    pass(0, 10);
    expect(processors.isBusy(10_200)).toBe(false);
    expect(processors.isBusy(10_240)).toBe(true);
  });

  it('were asked about too long ago: what was then says nothing of now', () => {
    pass(100, 100);
    expect(processors.isBusy(12_000)).toBe(true);
  });
});
