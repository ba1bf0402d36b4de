import type { AgentConfiguration } from '../agent/contract.ts';

/** Where scripts look that were not started by us and so have no environment of ours. */
const DIRECTORY = '/run/e2b';
const MARKS = ['E2B_SANDBOX', 'E2B_SANDBOX_ID', 'E2B_TEMPLATE_ID'];

/** The files that tell a script where it is, as the variables of the same names tell a program (contract §2.2). */
export function markFiles(env: Readonly<Record<string, string>>): NonNullable<AgentConfiguration['files']> {
  return MARKS.flatMap((name) => {
    const value = env[name];
    return value === undefined ? [] : [{ path: `${DIRECTORY}/.${name}`, data: Buffer.from(value), mode: 0o644 }];
  });
}
