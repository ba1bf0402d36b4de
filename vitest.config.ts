import { configDefaults, defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take the whole machine, or put the internet of the tests on it: one at a time, after all others. */
const ALONE = ['tests/hostile/**/*.test.ts', 'tests/network/**/*.test.ts'];
/** The longest of the others; begun last they would run on alone at the end. */
const FIRST = ['tests/templates/code-interpreter.test.ts', 'tests/templates/cache.test.ts'];
/** Real sandboxes take their time. */
const patience = { testTimeout: 120_000, hookTimeout: 120_000 };

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const place = FIRST.findIndex((file) => moduleId.endsWith(file));
      return place === -1 ? FIRST.length : place;
    };
    return (await super.sort(files)).sort((one, other) => rank(one) - rank(other));
  }
}

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: { name: 'unit', include: ['src/**/*.test.ts'], sequence: { groupOrder: 0 } },
      },
      {
        test: {
          name: 'blackbox',
          include: ['tests/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...ALONE],
          maxWorkers: 3,
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
