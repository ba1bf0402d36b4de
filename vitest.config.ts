import { configDefaults, defineConfig } from 'vitest/config';

/**
 * Suites that take long or load the whole machine. `SANDBAR_TEST_FULL=1` runs them too, and at full size.
 */
const FULL_ONLY = [
  'tests/stress/**',
  'tests/hostile/**',
  'tests/python/**',
  'tests/network/{cost,crash,gateway,headers,names,python,tls}.test.ts',
  'tests/templates/**',
  'tests/lifecycle/{cli,crash,cycles,forks,history,many-rows,python,reboot,transitions,wake}.test.ts',
];
const full = process.env['SANDBAR_TEST_FULL'] === '1';

export default defineConfig({
  test: {
    projects: [
      {
        test: { name: 'unit', include: ['src/**/*.test.ts'] },
      },
      {
        test: {
          name: 'blackbox',
          include: ['tests/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...(full ? [] : FULL_ONLY)],
          // Real sandboxes on one machine: a file that measures or counts must have it to itself.
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
