import { SandbarError } from '../core/errors.ts';

/** A command line that was not understood. */
export class UsageError extends SandbarError {
  constructor(message: string) {
    super('invalid', message);
  }
}
