import { type CommandOptions, type CommandResult, runCommand } from '../core/command.ts';

/**
 * Runs a long program that must not outlive us: the kernel kills it when this process dies, however that happens. Otherwise it would
 * go on writing into a directory that the next set-up clears away.
 */
export function runBound(program: string, args: readonly string[], options: CommandOptions): Promise<CommandResult> {
  return runCommand('setpriv', ['--pdeathsig', 'KILL', '--', program, ...args], options);
}
