import { type ChildProcess, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { Socket } from 'node:net';
import path from 'node:path';
import type { HttpHandler } from '../core/http.ts';
import type { Log } from '../core/log.ts';
import type { ConnectionMessage, WorkerSettings } from './contract.ts';
import { Desk, type DeskParts } from './desk.ts';

export interface WorkersOptions {
  count: number;
  settings: Omit<WorkerSettings, 'controlPlane'>;
  /** Answers the requests of the control plane that come to workers. */
  controlPlane: HttpHandler;
  parts: DeskParts;
  log: Log;
}

const ENTRY = path.join(import.meta.dirname, 'worker.ts');
const RESTART_AFTER_MS = 100;
const RESTART_AT_MOST_MS = 10_000;
/** A worker that lived so long is not one that cannot live. */
const HEALTHY_MS = 10_000;
const STOP_SPARE_MS = 2_000;
/** What a worker let through, with what it adds. */
const MAX_HEADER_BYTES = 72 * 1024;

/** Processes that serve connections beside the main one, which goes on to own the port, the store and the sandboxes. */
export class Workers {
  readonly #options: WorkersOptions;
  readonly #log: Log;
  readonly #controlPlane: Server;
  /** In Linux's abstract namespace: it goes with the process, however that ends. */
  readonly #socketPath = `\0sandbar-${randomBytes(16).toString('hex')}`;
  readonly #running = new Set<Worker>();
  #ready: Worker[] = [];
  #next = 0;
  #stopping = false;
  #failures = 0;

  constructor(options: WorkersOptions) {
    this.#options = options;
    this.#log = options.log.with({ part: 'workers' });
    this.#controlPlane = createServer(
      { maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: 0, keepAliveTimeout: 0 },
      options.controlPlane,
    );
  }

  /** Resolves when all of them can take connections. */
  async start(): Promise<void> {
    if (this.#options.count === 0) return;
    this.#controlPlane.listen(this.#socketPath);
    await once(this.#controlPlane, 'listening');
    await Promise.all(Array.from({ length: this.#options.count }, () => this.#add()));
  }

  /** Gives a connection to one of them, each in turn; false while there is none. */
  readonly handOver = (connection: Socket): boolean => {
    const worker = this.#ready[this.#next++ % this.#ready.length];
    worker?.hand(connection);
    return worker !== undefined;
  };

  /** Lets requests under way end for `graceMs`, then cuts what is left. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    this.#ready = [];
    await Promise.all([...this.#running].map((worker) => worker.stop(graceMs)));
    this.#controlPlane.close();
    this.#controlPlane.closeAllConnections();
  }

  #add(): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = new Worker(this.#options.parts, () => {
        this.#ready.push(worker);
        resolve();
      });
      this.#running.add(worker);
      worker.process.once('exit', (status, signal) => {
        this.#gone(worker, status ?? signal);
        reject(new Error(`a worker ended before it was ready (${status ?? signal})`));
      });
      worker.desk.channel.tell('start', { ...this.#options.settings, controlPlane: this.#socketPath });
    });
  }

  #gone(worker: Worker, how: number | string | null): void {
    this.#running.delete(worker);
    this.#ready = this.#ready.filter((other) => other !== worker);
    worker.close();
    if (this.#stopping) return;
    this.#failures = Date.now() - worker.startedAt > HEALTHY_MS ? 0 : this.#failures + 1;
    const waitMs = Math.min(RESTART_AFTER_MS * 2 ** this.#failures, RESTART_AT_MOST_MS);
    this.#log.error('a worker has ended and is replaced', { pid: worker.process.pid, how, waitMs });
    setTimeout(() => {
      // Its end before it was ready is told, and tried again, like any other.
      if (!this.#stopping) this.#add().catch(() => undefined);
    }, waitMs).unref();
  }
}

/** One of them, seen from the main process. */
class Worker {
  readonly process: ChildProcess;
  readonly desk: Desk;
  readonly startedAt = Date.now();
  /** Connections that are on their way to it. They are let go of when it has them, and end with it until then. */
  readonly #handed = new Map<number, Socket>();
  #lastConnection = 0;

  constructor(parts: DeskParts, onReady: () => void) {
    this.process = fork(ENTRY, [], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.desk = new Desk(parts, (message) => this.#send(message), {
      onReady,
      onTook: (connection) => this.#letGo(connection),
      onStuck: () => this.process.kill('SIGKILL'),
    });
    this.process.on('message', (message) => this.desk.channel.receive(message));
    // A message to a worker that has just ended: its end is told by itself.
    this.process.on('error', () => undefined);
  }

  hand(socket: Socket): void {
    const connection = ++this.#lastConnection;
    this.#handed.set(connection, socket);
    socket.once('error', () => this.#letGo(connection));
    const message: ConnectionMessage = { connection };
    this.process.send(message, socket, { keepOpen: true });
  }

  /** It has ended. */
  close(): void {
    this.desk.close();
    for (const connection of [...this.#handed.keys()]) this.#letGo(connection);
  }

  async stop(graceMs: number): Promise<void> {
    const ended = once(this.process, 'exit');
    const patience = setTimeout(() => this.process.kill('SIGKILL'), graceMs + STOP_SPARE_MS);
    await this.desk.channel.call('stop', graceMs).catch(() => undefined);
    if (this.process.connected) this.process.disconnect();
    await ended;
    clearTimeout(patience);
  }

  /** Closes this process's end of a connection, which lives on where another process has it. */
  #letGo(connection: number): void {
    this.#handed.get(connection)?.destroy();
    this.#handed.delete(connection);
  }

  #send(message: unknown): void {
    if (this.process.connected) this.process.send(message as object);
  }
}
