import type { AgentConfiguration } from '../agent/contract.ts';

/** Where scripts look that were not started by us and so have no environment of ours. */
const DIRECTORY = '/run/e2b';
const MARKS = ['E2B_SANDBOX', 'E2B_SANDBOX_ID', 'E2B_TEMPLATE_ID'];

/**
 * The files that tell a script where it is, as the variables of the same names tell a program (contract §2.2), and all variables together for a server
 * that ran before the sandbox was somebody's: the start command of its template.
 */
export function markFiles(env: Readonly<Record<string, string>>): NonNullable<AgentConfiguration['files']> {
  const marks = MARKS.flatMap((name) => {
    const value = env[name];
    return value === undefined ? [] : [{ path: `${DIRECTORY}/.${name}`, data: Buffer.from(value), mode: 0o644 }];
  });
  return [...marks, { path: `${DIRECTORY}/env.json`, data: Buffer.from(JSON.stringify(env)), mode: 0o644 }];
}
