import { createHash } from 'node:crypto';

const NUMBER_LENGTH = 8;
const CHECK_LENGTH = 12;

/**
 * Names of watchers: `w` and 20 characters that hold the agent's number and a check. Nothing is remembered here, so a watcher
 * outlives a restart of the service as it outlives a pause of its sandbox.
 */
export function watcherId(sandboxId: string, watcher: number): string {
  const number = watcher.toString(36).padStart(NUMBER_LENGTH, '0');
  return `w${number}${checkOf(sandboxId, number)}`;
}

/** The agent's number of a watcher, or undefined when the name is none of this sandbox's. */
export function watcherNumber(sandboxId: string, id: string): number | undefined {
  const number = id.slice(1, 1 + NUMBER_LENGTH);
  const genuine = id === `w${number}${checkOf(sandboxId, number)}`;
  return genuine ? Number.parseInt(number, 36) : undefined;
}

/** Not a secret: it only keeps one sandbox's names apart from another's, and typing errors from both. */
function checkOf(sandboxId: string, number: string): string {
  const digest = createHash('sha256').update(`${sandboxId}:${number}`).digest('hex');
  return BigInt(`0x${digest}`).toString(36).slice(-CHECK_LENGTH);
}
