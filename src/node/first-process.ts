import { newOperationId } from '../agent/client.ts';
import type { Agent } from '../agent/contract.ts';

const TIMEOUT_MS = 5_000;

/**
 * Runs a shell that does nothing. The first program that a gVisor sandbox runs takes it a fifth longer than those after it: in one that is booted ahead
 * it need not be the user's. A sandbox without that shell goes without.
 */
export async function runFirstProcess(agent: Agent): Promise<void> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const shell = { cmd: '/bin/bash', args: ['--noprofile', '--norc', '-c', ':'] };
  const start = {
    ...shell,
    user: 'root',
    env: {},
    cwd: '/',
    stdin: false,
    operationId: newOperationId(),
    subscriber: 1,
  };
  try {
    const { output } = await agent.startAndRead(start, { length: 0, waitMs: TIMEOUT_MS }, signal);
    await output;
  } catch {
    // It is not there, or does not end: the sandbox is as good as any.
  }
}
