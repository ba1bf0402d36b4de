import { describe, expect, it } from 'vitest';
import { readPackageNeeds } from './packages.ts';

describe('the list of packages', () => {
  it('can be read and gives a reason for each', () => {
    const needs = readPackageNeeds();
    expect(needs.map((need) => need.package)).toEqual(
      expect.arrayContaining(['crun', 'nftables', 'mmdebstrap', 'cargo']),
    );
    for (const need of needs) expect(need.reason).not.toBe('');
    expect(new Set(needs.map((need) => need.package)).size).toBe(needs.length);
  });

  it('keeps what only the tests need apart', () => {
    const forTests = readPackageNeeds().filter(({ when }) => when === 'test');
    expect(forTests.map((need) => need.package)).toContain('postgresql');
  });

  it('refuses a line that is not whole', () => {
    expect(() => readPackageNeeds('crun | crun | sometimes | why not')).toThrow(/cannot read/);
  });
});
