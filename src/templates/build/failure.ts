import type { BuildReason } from '../../db/schema.ts';

/** A build that cannot go on, with a message that its maker is meant to read. */
export class BuildFailure extends Error {
  /** `base`, the number of a step from 1, `finalize`, or undefined where no step is to blame. */
  readonly step: string | undefined;

  constructor(message: string, step?: string, options: { cause?: unknown } = {}) {
    super(message, options);
    this.name = 'BuildFailure';
    this.step = step;
  }

  get reason(): BuildReason {
    return this.step === undefined ? { message: this.message } : { message: this.message, step: this.step };
  }
}
