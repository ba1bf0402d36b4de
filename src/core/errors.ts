import { Code } from '@connectrpc/connect';

/** Every way a request can fail, with what it becomes at the two edges. The one place where a failure gets its statuses. */
const registry = {
  invalid: { http: 400, connect: Code.InvalidArgument },
  unauthenticated: { http: 401, connect: Code.Unauthenticated },
  forbidden: { http: 403, connect: Code.PermissionDenied },
  not_found: { http: 404, connect: Code.NotFound },
  conflict: { http: 409, connect: Code.Aborted },
  already_exists: { http: 409, connect: Code.AlreadyExists },
  failed_precondition: { http: 400, connect: Code.FailedPrecondition },
  rate_limited: { http: 429, connect: Code.ResourceExhausted },
  exhausted: { http: 429, connect: Code.ResourceExhausted },
  internal: { http: 500, connect: Code.Internal },
  unknown: { http: 500, connect: Code.Unknown },
  unimplemented: { http: 501, connect: Code.Unimplemented },
  bad_gateway: { http: 502, connect: Code.Unavailable },
  unavailable: { http: 503, connect: Code.Unavailable },
  timeout: { http: 504, connect: Code.DeadlineExceeded },
  no_space: { http: 507, connect: Code.ResourceExhausted },
} as const satisfies Record<string, { http: number; connect: Code }>;

export type ErrorKind = keyof typeof registry;

/** The one error class inside the service. `errorCode` is the protocol's optional semantic code, e.g. `sandbox_create_failed`. */
export class SandbarError extends Error {
  readonly kind: ErrorKind;
  readonly errorCode: string | undefined;

  constructor(kind: ErrorKind, message: string, options: { cause?: unknown; errorCode?: string } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SandbarError';
    this.kind = kind;
    this.errorCode = options.errorCode;
  }

  get httpStatus(): number {
    return registry[this.kind].http;
  }

  get connectCode(): Code {
    return registry[this.kind].connect;
  }
}

/** Anything thrown, as a SandbarError. What is not ours is internal, with its message kept as the cause. */
export function toSandbarError(thrown: unknown): SandbarError {
  if (thrown instanceof SandbarError) return thrown;
  return new SandbarError('internal', messageOf(thrown), { cause: thrown });
}

/** The message of anything thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** The errno name (`ENOENT`, …) of a system error, or undefined. */
export function errnoOf(thrown: unknown): string | undefined {
  if (thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string') return thrown.code;
  return undefined;
}
