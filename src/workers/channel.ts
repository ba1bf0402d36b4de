import { type ErrorKind, messageOf, SandbarError, toSandbarError } from '../core/errors.ts';

/** What one side can be asked, by name. */
// biome-ignore lint/suspicious/noExplicitAny: arguments of any kind; `call` and `tell` hold each to its own.
export type Surface = { [name: string]: (...args: any[]) => unknown };

/** A request as it goes over the wire. One without a number wants no answer. */
interface Ask {
  ask: string;
  args: unknown[];
  id?: number;
}

interface Answer {
  answer: number;
  value?: unknown;
  failure?: { kind: ErrorKind; message: string };
}

/** Calls both ways over something that carries messages in order. */
export class Channel<Theirs extends Surface> {
  readonly #send: (message: Ask | Answer) => void;
  readonly #ours: Surface;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #last = 0;
  #closed: Error | undefined;

  constructor(send: (message: unknown) => void, ours: Surface) {
    this.#send = send;
    this.#ours = ours;
  }

  /** Asks and waits for the answer. Rejects with the other side's error, or when the channel is closed. */
  call<N extends keyof Theirs & string>(
    name: N,
    ...args: Parameters<Theirs[N]>
  ): Promise<Awaited<ReturnType<Theirs[N]>>> {
    if (this.#closed) return Promise.reject(this.#closed);
    const id = ++this.#last;
    const answer = Promise.withResolvers<unknown>();
    this.#waiting.set(id, answer);
    this.#send({ ask: name, args, id });
    return answer.promise as Promise<Awaited<ReturnType<Theirs[N]>>>;
  }

  /** Asks and wants no answer. */
  tell<N extends keyof Theirs & string>(name: N, ...args: Parameters<Theirs[N]>): void {
    if (!this.#closed) this.#send({ ask: name, args });
  }

  receive(message: unknown): void {
    const received = message as Ask | Answer;
    if ('ask' in received) void this.#serve(received);
    else this.#settle(received);
  }

  /** Fails whatever waits and all to come. */
  close(reason: string): void {
    this.#closed = new SandbarError('unavailable', reason);
    for (const { reject } of this.#waiting.values()) reject(this.#closed);
    this.#waiting.clear();
  }

  async #serve({ ask, args, id }: Ask): Promise<void> {
    let reply: Omit<Answer, 'answer'>;
    try {
      const work = this.#ours[ask];
      if (work === undefined) throw new SandbarError('unimplemented', `nothing is called ${ask}`);
      reply = { value: await work(...args) };
    } catch (error) {
      reply = { failure: { kind: toSandbarError(error).kind, message: messageOf(error) } };
    }
    if (id !== undefined && !this.#closed) this.#send({ answer: id, ...reply });
  }

  #settle({ answer, value, failure }: Answer): void {
    const waiting = this.#waiting.get(answer);
    if (waiting === undefined) return;
    this.#waiting.delete(answer);
    if (failure) waiting.reject(new SandbarError(failure.kind, failure.message));
    else waiting.resolve(value);
  }
}
