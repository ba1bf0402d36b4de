import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { SandbarError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';

interface Waiting {
  resolve: (words: string[]) => void;
  reject: (error: Error) => void;
}

/**
 * The `sandbar-host` program kept running beside the service (host/src/serve.rs): mounts and process watching without starting
 * a program for each. It ends by itself when the service does, since its standard input closes.
 */
export class HostHelper {
  readonly #program: string;
  readonly #log: Log;
  readonly #waiting = new Map<string, Waiting>();
  readonly #exitListeners = new Map<string, () => void>();
  #child: ChildProcessByStdio<Writable, Readable, null> | undefined;
  #next = 1;

  constructor(program: string, log: Log) {
    this.#program = program;
    this.#log = log;
  }

  start(): void {
    const child = spawn(this.#program, ['serve'], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child = child;
    child.on('error', (error) => this.#fail(error.message));
    child.on('exit', (status, signal) => this.#fail(`ended (${signal ?? status})`));
    child.stdin.on('error', () => undefined);
    createInterface({ input: child.stdout }).on('line', (line) => this.#receive(line));
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null) return;
    this.#child = undefined;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.stdin.end();
    await gone;
  }

  /** Mounts a directory again as a user namespace that begins at `base` sees it. */
  idmap(source: string, target: string, ids: { base: number; count: number }, access: 'ro' | 'rw'): Promise<void> {
    return this.#ask('idmap', source, target, String(ids.base), String(ids.count), access);
  }

  /** Mounts an overlay. Where its upper directory is id-mapped, `owner` is the id that may write there. */
  overlay(target: string, options: string, owner?: number): Promise<void> {
    return this.#ask('overlay', target, options, ...(owner === undefined ? [] : [String(owner)]));
  }

  /** Mounts a file that holds an ext4 file system. */
  mountImage(file: string, target: string, options: string): Promise<void> {
    return this.#ask('loop', file, target, options);
  }

  /** Takes a mount away; what is not mounted is success. */
  unmount(target: string): Promise<void> {
    return this.#ask('unmount', target);
  }

  /** Copies a file, its holes kept. */
  copyFile(source: string, target: string): Promise<void> {
    return this.#ask('copy', source, target);
  }

  syncFilesystem(directory: string): Promise<void> {
    return this.#ask('sync', directory);
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
    this.#exitListeners.set(key, ended);
    try {
      await this.#ask('watch', key, String(pid));
    } catch {
      // No such process any more: the end was before the watch.
      if (this.#exitListeners.delete(key)) ended();
    }
  }

  async forgetExit(key: string): Promise<void> {
    if (this.#exitListeners.delete(key)) await this.#ask('forget', key);
  }

  async #ask(...words: string[]): Promise<void> {
    await this.#question(...words);
  }

  /** Resolves to the words of the answer. */
  #question(...words: string[]): Promise<string[]> {
    const child = this.#child;
    if (child === undefined) return Promise.reject(new SandbarError('unavailable', 'the host helper does not run'));
    const bad = words.find((word) => /[\t\n]/.test(word));
    if (bad !== undefined) return Promise.reject(new SandbarError('invalid', `'${bad}' holds a tab or a line feed`));
    const id = String(this.#next++);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      child.stdin.write(`${id}\t${words.join('\t')}\n`);
    });
  }

  #receive(line: string): void {
    const [id = '', verdict, ...words] = line.split('\t');
    const [detail = ''] = words;
    if (id === '-' && verdict === 'exit') {
      const listener = this.#exitListeners.get(detail);
      this.#exitListeners.delete(detail);
      listener?.();
      return;
    }
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (verdict === 'ok') waiting?.resolve(words);
    else waiting?.reject(new SandbarError('internal', detail));
  }

  #fail(why: string): void {
    if (this.#child === undefined) return;
    this.#child = undefined;
    this.#log.error('the host helper is gone', { why });
    for (const waiting of this.#waiting.values()) waiting.reject(new SandbarError('unavailable', `host helper ${why}`));
    this.#waiting.clear();
  }
}
