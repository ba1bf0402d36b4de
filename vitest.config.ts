import { configDefaults, defineConfig } from 'vitest/config';

/** Files that measure, that load the whole machine, or that put the internet of the tests on it: one at a time, after all others. */
const ALONE = ['tests/stress/**/*.test.ts', 'tests/hostile/**/*.test.ts', 'tests/network/**/*.test.ts'];
/** Real sandboxes take their time. */
const patience = { testTimeout: 120_000, hookTimeout: 120_000 };

export default defineConfig({
  test: {
    projects: [
      {
        test: { name: 'unit', include: ['src/**/*.test.ts'], sequence: { groupOrder: 0 } },
      },
      {
        test: {
          name: 'blackbox',
          include: ['tests/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...ALONE],
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
          ...patience,
        },
      },
      {
        test: { name: 'alone', include: ALONE, fileParallelism: false, sequence: { groupOrder: 2 }, ...patience },
      },
    ],
  },
});
