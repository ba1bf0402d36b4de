import { beforeAll } from 'vitest';
import type { RuntimeName } from '../../src/core/config.ts';
import { allFrames, type Frame, frame, frames } from './connect-frames.ts';
import { describeOnRuntimes, type TestService } from './service.ts';

type HeaderMap = Record<string, string>;
export type Json = Record<string, unknown>;

export const ENVD_PORT = 49983;
const UNARY = { 'content-type': 'application/json', 'connect-protocol-version': '1' };
const STREAMING = { 'content-type': 'application/connect+json', 'connect-protocol-version': '1' };

export interface RawAnswer {
  status: number;
  headers: Headers;
  body: Json;
}

/** Runs a suite against a sandbox of each runtime with plain requests. All its tests share the sandbox. */
export function describeRaw(
  name: string,
  suite: (sandbox: () => RawSandbox, runtime: RuntimeName) => void,
  body: Json = {},
): void {
  describeOnRuntimes(name, (service, runtime) => {
    let sandbox: RawSandbox | undefined;
    beforeAll(async () => {
      sandbox = await RawSandbox.create(service(), body);
    });
    suite(() => sandbox as RawSandbox, runtime);
  });
}

/** A sandbox as it is seen on the wire, without any client. */
export class RawSandbox {
  readonly service: TestService;
  readonly id: string;
  /** What the control plane answered to the creation. */
  readonly created: Json;

  static async create(service: TestService, body: Json = {}): Promise<RawSandbox> {
    const response = await service.fetch('/sandboxes', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ templateID: 'base', timeout: 600, secure: true, ...body }),
    });
    const created = (await response.json()) as Json;
    if (response.status !== 201) throw new Error(`no sandbox: ${response.status} ${JSON.stringify(created)}`);
    return new RawSandbox(service, created);
  }

  private constructor(service: TestService, created: Json) {
    this.service = service;
    this.created = created;
    this.id = created['sandboxID'] as string;
  }

  /** Headers that route a request to the sandbox and open it. */
  get headers(): HeaderMap {
    const token = this.created['envdAccessToken'];
    return {
      'e2b-sandbox-id': this.id,
      'e2b-sandbox-port': String(ENVD_PORT),
      ...(typeof token === 'string' && { 'x-access-token': token }),
    };
  }

  fetch(pathAndQuery: string, init: RequestInit & { headers?: HeaderMap } = {}): Promise<Response> {
    return fetch(`${this.service.url}${pathAndQuery}`, { ...init, headers: { ...this.headers, ...init.headers } });
  }

  /** A unary Connect call in JSON. `method` is like `process.Process/List`. */
  async call(method: string, message: unknown, headers: HeaderMap = {}): Promise<RawAnswer> {
    const response = await this.fetch(`/${method}`, {
      method: 'POST',
      headers: { ...UNARY, ...headers },
      body: JSON.stringify(message),
    });
    return { status: response.status, headers: response.headers, body: (await response.json()) as Json };
  }

  /** The answer of a unary call that must succeed. */
  async ask(method: string, message: unknown, headers: HeaderMap = {}): Promise<Json> {
    const answer = await this.call(method, message, headers);
    if (answer.status !== 200) throw new Error(`${method}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  /** A server stream in JSON, as it comes. */
  async open(method: string, message: unknown, headers: HeaderMap = {}): Promise<OpenStream> {
    const leaving = new AbortController();
    const response = await this.fetch(`/${method}`, {
      method: 'POST',
      headers: { ...STREAMING, ...headers },
      body: frame(message),
      signal: leaving.signal,
    });
    return new OpenStream(response, leaving);
  }

  /** All frames of a server stream. */
  async stream(method: string, message: unknown, headers: HeaderMap = {}): Promise<Frame[]> {
    const response = await this.fetch(`/${method}`, {
      method: 'POST',
      headers: { ...STREAMING, ...headers },
      body: frame(message),
    });
    return allFrames(response);
  }

  /** Runs a shell command to its end. */
  async run(command: string, headers: HeaderMap = {}): Promise<{ stdout: string; end: Json }> {
    const message = { process: { cmd: '/bin/bash', args: ['-c', command] }, stdin: false };
    return outcomeOf(await this.stream('process.Process/Start', message, headers));
  }

  /** Starts a shell command and gives its pid once it runs; it is left to itself. */
  async start(command: string, more: Json = {}, headers: HeaderMap = {}): Promise<number> {
    const message = { process: { cmd: '/bin/bash', args: ['-c', command] }, ...more };
    const stream = await this.open('process.Process/Start', message, headers);
    const first = await stream.next();
    stream.leave();
    return pidOf(first);
  }

  /** Writes a file by way of POST /files. */
  async write(path: string, content: string | Uint8Array): Promise<void> {
    const response = await this.fetch(`/files?${new URLSearchParams({ path })}`, {
      method: 'POST',
      headers: { 'content-type': 'application/octet-stream' },
      body: content as NonNullable<RequestInit['body']>,
    });
    if (response.status !== 200) throw new Error(`cannot write ${path}: ${response.status} ${await response.text()}`);
    await response.body?.cancel();
  }

  /** Whether the service still answers for this sandbox; for the end of a test that did something bad to it. */
  async goesOn(): Promise<boolean> {
    return (await this.run('echo still here')).stdout === 'still here\n';
  }
}

/** A server stream that is read frame by frame. */
export class OpenStream {
  readonly response: Response;
  readonly #leaving: AbortController;
  readonly #frames: AsyncGenerator<Frame>;

  constructor(response: Response, leaving: AbortController) {
    this.response = response;
    this.#leaving = leaving;
    this.#frames = frames(response.body as AsyncIterable<Uint8Array>);
  }

  /** The next frame; fails at the end of the stream. */
  async next(): Promise<Frame> {
    const { value, done } = await this.#frames.next();
    if (done) throw new Error('the stream has ended');
    return value;
  }

  /** All frames to the end. */
  rest(): Promise<Frame[]> {
    return Array.fromAsync(this.#frames);
  }

  /** Cuts the connection. */
  leave(): void {
    this.#leaving.abort();
  }
}

/** The event of a frame of a process stream, `{start: …}`, `{data: …}`, `{end: …}` or `{keepalive: …}`. */
export function eventOf({ message }: Frame): Record<string, Json> {
  return (message['event'] ?? {}) as Record<string, Json>;
}

export function pidOf(first: Frame): number {
  const pid = eventOf(first)['start']?.['pid'];
  if (typeof pid !== 'number') throw new Error(`no start event: ${JSON.stringify(first.message)}`);
  return pid;
}

/** Output and end of a whole process stream. */
export function outcomeOf(all: readonly Frame[]): {
  stdout: string;
  stderr: string;
  pty: string;
  end: Json;
  last: Json;
} {
  const text = (kind: string) =>
    Buffer.concat(
      all.flatMap((one) => {
        const data = eventOf(one)['data']?.[kind];
        return typeof data === 'string' ? [Buffer.from(data, 'base64')] : [];
      }),
    ).toString();
  const end = all.map((one) => eventOf(one)['end']).find((event) => event !== undefined);
  return {
    stdout: text('stdout'),
    stderr: text('stderr'),
    pty: text('pty'),
    end: end ?? {},
    last: all.at(-1)?.message ?? {},
  };
}

/** The error that ends a stream, from its last frame. */
export function errorOf(all: readonly Frame[]): Json | undefined {
  const last = all.at(-1);
  return last?.flags === 2 ? (last.message['error'] as Json | undefined) : undefined;
}

/** `Authorization: Basic` for a user, as the clients send it. */
export function asUser(user: string): HeaderMap {
  return { authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` };
}

export const base64 = (text: string) => Buffer.from(text).toString('base64');
