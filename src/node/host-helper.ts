import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { COMMAND_TIMEOUT_MS, type CommandOptions, type CommandResult, commandFailure } from '../core/command.ts';
import { SandbarError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Order } from './host-orders.ts';

interface Waiting {
  resolve: (words: string[]) => void;
  reject: (error: Error) => void;
}

/** A program run by the helper takes its input whole, and nobody listens meanwhile. */
export type HelperRunOptions = Pick<CommandOptions, 'timeoutMs' | 'discardOutput' | 'okStatuses' | 'signal'> & {
  input?: string;
};

interface WatchedProcess {
  pid: number;
  ended: () => void;
}

interface WatchedMemory {
  group: string;
  threshold: number;
  changed: () => void;
}

const START_AGAIN_MS = 100;

/**
 * The `sandbar-host` program kept running beside the service (host/src/serve.rs): mounts and process watching without starting
 * a program for each, and programs started without forking the service. It ends by itself when the service does, since its standard input
 * closes; if it ends before, it is started again.
 */
export class HostHelper {
  readonly #program: string;
  readonly #log: Log;
  readonly #waiting = new Map<string, Waiting>();
  readonly #watched = new Map<string, WatchedProcess>();
  readonly #watchedMemory = new Map<string, WatchedMemory>();
  #child: ChildProcessByStdio<Writable, Readable, null> | undefined;
  #next = 1;
  #stopped = false;

  constructor(program: string, log: Log) {
    this.#program = program;
    this.#log = log;
  }

  start(): void {
    const child = spawn(this.#program, ['serve'], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child = child;
    child.on('error', (error) => this.#fail(child, error.message));
    child.on('exit', (status, signal) => this.#fail(child, `ended (${signal ?? status})`));
    child.stdin.on('error', () => undefined);
    createInterface({ input: child.stdout }).on('line', (line) => this.#receive(line));
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    const child = this.#child;
    if (child === undefined || child.exitCode !== null) return;
    this.#child = undefined;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.stdin.end();
    await gone;
  }

  /** Does these in this order; the first that fails is the last. */
  async do(...orders: Order[]): Promise<void> {
    await this.#ask('batch', ...orders.flatMap(([verb, ...words]) => [String(words.length), verb, ...words]));
  }

  /** Where a TCP connection was going that was redirected to this machine, by both its ends. */
  async originalDestination(
    client: { address: string; port: number },
    local: { address: string; port: number },
  ): Promise<{ address: string; port: number }> {
    const [address = '', port = '0'] = await this.#question(
      'origin',
      ...[client, local].flatMap((end) => [end.address, String(end.port)]),
    );
    return { address, port: Number(port) };
  }

  /** Makes the kernel forget every connection and flow that one of these addresses began. */
  forgetFlows(addresses: readonly string[]): Promise<void> {
    return this.#ask('forget-flows', ...addresses);
  }

  /** Makes a network namespace with one interface, at `guest`, joined to `interfaceName` out here, at `host`. */
  makeSlot(netns: string, interfaceName: string, host: string, guest: string): Promise<void> {
    return this.#ask('slot-make', netns, interfaceName, host, guest);
  }

  /** Removes both; what is not there is success. */
  removeSlot(netns: string, interfaceName: string): Promise<void> {
    return this.#ask('slot-remove', netns, interfaceName);
  }

  /** Calls back once when the process ends; at once when it has ended already. */
  async watchExit(key: string, pid: number, ended: () => void): Promise<void> {
    this.#watched.set(key, { pid, ended });
    await this.#watch(key, pid);
  }

  /** Calls back each time the use of memory of a v1 control group passes a threshold, and when the group stands still at its limit. */
  async watchMemory(key: string, group: string, threshold: number, changed: () => void): Promise<void> {
    this.#watchedMemory.set(key, { group, threshold, changed });
    await this.#ask('watch-memory', key, group, String(threshold));
  }

  /** Ends every watch of this key. */
  async forget(key: string): Promise<void> {
    const known = [this.#watched.delete(key), this.#watchedMemory.delete(key)];
    if (known.includes(true)) await this.#ask('forget', key);
  }

  /** Runs another program to its end, as `runCommand` does: a fork of the service itself would stop it for milliseconds. */
  async run(program: string, args: readonly string[], options: HelperRunOptions = {}): Promise<CommandResult> {
    const { timeoutMs = COMMAND_TIMEOUT_MS, okStatuses = [0], signal } = options;
    signal?.throwIfAborted();
    const output = options.discardOutput ? 'discard' : 'keep';
    const { id, answer } = this.#send('run', String(timeoutMs), output, options.input ?? '', program, ...args);
    const abort = () => void this.#ask('stop', id).catch(() => undefined);
    signal?.addEventListener('abort', abort, { once: true });
    const [verdict = '', stdout = '', stderr = ''] = await answer.finally(() =>
      signal?.removeEventListener('abort', abort),
    );
    const result = { status: verdict === 'timeout' ? -1 : Number(verdict), stdout, stderr };
    if (okStatuses.includes(result.status)) return result;
    signal?.throwIfAborted();
    const ended = result.status < 0 ? `was ended by signal ${-result.status}` : `exited with ${result.status}`;
    const why = verdict === 'timeout' ? `took longer than ${timeoutMs} ms` : ended;
    throw commandFailure([program, ...args], why, result);
  }

  async #watch(key: string, pid: number): Promise<void> {
    try {
      await this.#ask('watch', key, String(pid));
    } catch (error) {
      // Lost with the helper: it is watched again when that is back.
      if (error instanceof SandbarError && error.kind === 'unavailable') return;
      // No such process any more: the end was before the watch.
      this.#told(key);
    }
  }

  #told(key: string): void {
    const process = this.#watched.get(key);
    this.#watched.delete(key);
    process?.ended();
  }

  async #ask(...words: string[]): Promise<void> {
    await this.#question(...words);
  }

  /** Resolves to the words of the answer. */
  #question(...words: string[]): Promise<string[]> {
    return this.#send(...words).answer;
  }

  #send(...words: string[]): { id: string; answer: Promise<string[]> } {
    const id = String(this.#next++);
    const child = this.#child;
    if (child === undefined)
      return { id, answer: Promise.reject(new SandbarError('unavailable', 'the host helper does not run')) };
    const answer = new Promise<string[]>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      child.stdin.write(`${[id, ...words.map(escaped)].join('\t')}\n`);
    });
    return { id, answer };
  }

  #receive(line: string): void {
    const [id = '', verdict, ...words] = line.split('\t').map(unescaped);
    const [detail = ''] = words;
    if (id === '-' && verdict === 'exit') {
      this.#told(detail);
      return;
    }
    if (id === '-' && verdict === 'memory') {
      this.#watchedMemory.get(detail)?.changed();
      return;
    }
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (verdict === 'ok') waiting?.resolve(words);
    else waiting?.reject(new SandbarError('internal', detail));
  }

  #fail(child: object, why: string): void {
    if (this.#child !== child) return;
    this.#child = undefined;
    this.#log.error('the host helper is gone', { why });
    for (const waiting of this.#waiting.values()) waiting.reject(new SandbarError('unavailable', `host helper ${why}`));
    this.#waiting.clear();
    setTimeout(() => this.#startAgain(), START_AGAIN_MS).unref();
  }

  #startAgain(): void {
    if (this.#stopped) return;
    this.start();
    for (const [key, { pid }] of this.#watched) void this.#watch(key, pid);
    for (const [key, { group, threshold }] of this.#watchedMemory)
      void this.#ask('watch-memory', key, group, String(threshold)).catch(() => undefined);
  }
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n' };

/** A word as it stands between tabs on a line. */
function escaped(word: string): string {
  return word.replace(/[\\\t\n]/g, (character) => ESCAPES[character] ?? character);
}

function unescaped(word: string): string {
  return word.replace(/\\(.)/g, (_, character) => (character === 't' ? '\t' : character === 'n' ? '\n' : character));
}
