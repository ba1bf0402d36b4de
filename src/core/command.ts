import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { SandbarError } from './errors.ts';

export interface CommandOptions {
  /** Ends the program (SIGKILL) when it takes longer. */
  timeoutMs?: number;
  signal?: AbortSignal;
  /** Written to standard input, which is then closed. A stream that fails ends the program, and its error is the error. */
  input?: string | Uint8Array | Readable;
  /**
   * Gives the program /dev/null for its output: for one that leaves a process behind, which would hold the pipes open for good (and
   * a container must not inherit a regular file).
   */
  discardOutput?: boolean;
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  /** Exit statuses that are not an error. */
  okStatuses?: readonly number[];
  /** Hears every line of standard output and standard error as it comes: for showing progress. */
  onLine?: (line: string) => void;
}

export interface CommandResult {
  status: number;
  stdout: string;
  stderr: string;
}

export const COMMAND_TIMEOUT_MS = 60_000;
const OUTPUT_LIMIT_BYTES = 16 * 1024 * 1024;

/**
 * Runs another program to its end. The one way the service does so: an argument array, never a shell string; a time limit;
 * standard error in the message of the error.
 */
export function runCommand(
  program: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  const { timeoutMs = COMMAND_TIMEOUT_MS, okStatuses = [0] } = options;
  return new Promise((resolve, reject) => {
    options.signal?.throwIfAborted();
    const child = spawn(program, args, {
      stdio: options.discardOutput ? ['ignore', 'ignore', 'ignore'] : ['pipe', 'pipe', 'pipe'],
      ...(options.cwd !== undefined && { cwd: options.cwd }),
      ...(options.env !== undefined && { env: options.env }),
    });
    const stdout = collector();
    const stderr = collector();
    child.stdout?.on('data', stdout.push);
    child.stderr?.on('data', stderr.push);
    if (options.onLine !== undefined) {
      for (const stream of [child.stdout, child.stderr])
        if (stream !== null)
          createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY }).on('line', options.onLine);
    }
    // A program that ends without reading its input closes the pipe: its exit status tells the story, not EPIPE.
    child.stdin?.on('error', () => undefined);
    let inputFailure: Error | undefined;
    if (options.input instanceof Readable && child.stdin !== null) {
      const source = options.input;
      pipeline(source, child.stdin).catch((error: NodeJS.ErrnoException) => {
        source.destroy();
        if (error.code === 'EPIPE' || error.code === 'ERR_STREAM_PREMATURE_CLOSE') return;
        inputFailure = error;
        child.kill('SIGKILL');
      });
    } else if (!(options.input instanceof Readable)) child.stdin?.end(options.input);

    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill('SIGKILL');
    }, timeoutMs);
    const abort = () => child.kill('SIGKILL');
    options.signal?.addEventListener('abort', abort, { once: true });
    const settle = () => {
      clearTimeout(timer);
      options.signal?.removeEventListener('abort', abort);
    };

    child.on('error', (error) => {
      settle();
      reject(new SandbarError('internal', `${program}: ${error.message}`, { cause: error }));
    });
    child.on('close', (status, signal) => {
      settle();
      // Before the status: a program that has seen its input end early may end in its own good order.
      if (inputFailure !== undefined) return reject(inputFailure);
      const result = { status: status ?? -1, stdout: stdout.text(), stderr: stderr.text() };
      if (status !== null && okStatuses.includes(status)) return resolve(result);
      if (options.signal?.aborted) return reject(options.signal.reason);
      const why = timedOut
        ? `took longer than ${timeoutMs} ms`
        : status === null
          ? `was ended by ${signal}`
          : `exited with ${status}`;
      reject(commandFailure([program, ...args], why, result));
    });
  });
}

/** The error of a program that did not do what was asked: what was run, how it ended, what it said. */
export function commandFailure(words: readonly string[], why: string, { stdout, stderr }: CommandResult): SandbarError {
  const said = stderr.trim() || stdout.trim();
  return new SandbarError(
    'internal',
    `${words.join(' ').slice(0, 300)}: ${why}${said ? `: ${said.slice(-2000)}` : ''}`,
  );
}

function collector(): { push: (chunk: Buffer) => void; text: () => string } {
  const chunks: Buffer[] = [];
  let size = 0;
  return {
    push(chunk) {
      if (size >= OUTPUT_LIMIT_BYTES) return;
      size += chunk.length;
      chunks.push(chunk);
    },
    text: () => Buffer.concat(chunks).toString('utf8'),
  };
}
