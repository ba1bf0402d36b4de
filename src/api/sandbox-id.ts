import { SandbarError } from '../core/errors.ts';

/** The client part of legacy composite IDs, the same for all. */
export const CLIENT_ID = '6532622b';

/** The sandbox in `id` or the legacy `id-clientID`. */
export function parseSandboxId(text: string): string {
  const match = /^([a-z0-9]+)(?:-[a-z0-9]+)?$/.exec(text);
  if (match?.[1] === undefined) throw new SandbarError('invalid', 'Invalid sandbox ID');
  return match[1];
}

export function noSuchSandbox(id: string): SandbarError {
  return new SandbarError('not_found', `Sandbox "${id}" doesn't exist or you don't have access to it`);
}
