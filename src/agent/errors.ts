import { type ErrorKind, SandbarError } from '../core/errors.ts';

/** Codes of the agent's error answers (docs/agent-protocol.md, "Errors"). */
export const agentCodes = {
  NOT_FOUND: 1,
  EXISTS: 2,
  NOT_DIRECTORY: 3,
  IS_DIRECTORY: 4,
  INVALID: 5,
  UNKNOWN_USER: 6,
  NO_SPACE: 7,
  PERMISSION: 8,
  LOOP: 9,
  CWD: 10,
  SPAWN: 11,
  STDIN_CLOSED: 12,
  NOT_A_TTY: 13,
  EXHAUSTED: 14,
  NETWORK_MOUNT: 15,
  UNSUPPORTED: 16,
  NOT_REGULAR: 17,
  REFUSED: 18,
  INTERNAL: 19,
} as const;

export type AgentCode = keyof typeof agentCodes;

const kinds: Record<AgentCode, ErrorKind> = {
  NOT_FOUND: 'not_found',
  EXISTS: 'already_exists',
  NOT_DIRECTORY: 'invalid',
  IS_DIRECTORY: 'invalid',
  INVALID: 'invalid',
  UNKNOWN_USER: 'unauthenticated',
  NO_SPACE: 'no_space',
  PERMISSION: 'forbidden',
  LOOP: 'failed_precondition',
  CWD: 'invalid',
  SPAWN: 'invalid',
  STDIN_CLOSED: 'internal',
  NOT_A_TTY: 'internal',
  EXHAUSTED: 'exhausted',
  NETWORK_MOUNT: 'invalid',
  UNSUPPORTED: 'unimplemented',
  NOT_REGULAR: 'invalid',
  REFUSED: 'bad_gateway',
  INTERNAL: 'internal',
};

const names = new Map<number, AgentCode>(
  Object.entries(agentCodes).map(([name, code]) => [code, name as AgentCode] as const),
);

/** A failure the agent reported. */
export class AgentError extends SandbarError {
  readonly code: AgentCode;
  /** The kernel's error number, 0 when none. */
  readonly errno: number;
  /** The path it was about, as resolved; empty when none was. */
  readonly path: string;

  constructor(code: AgentCode, message: string, details: { errno?: number; path?: string } = {}) {
    super(kinds[code], message);
    this.name = 'AgentError';
    this.code = code;
    this.errno = details.errno ?? 0;
    this.path = details.path ?? '';
  }
}

/** Name of a code on the wire; one that is not known counts as INTERNAL. */
export function agentCodeName(code: number): AgentCode {
  return names.get(code) ?? 'INTERNAL';
}

/** Whether something thrown is the agent's error with this code. */
export function isAgentError(thrown: unknown, code: AgentCode): thrown is AgentError {
  return thrown instanceof AgentError && thrown.code === code;
}
