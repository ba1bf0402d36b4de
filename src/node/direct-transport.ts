import { create, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf';
import type { HandlerContext, Transport } from '@connectrpc/connect';

/** What a handler learns of a call besides its request. */
export type CallContext = Pick<HandlerContext, 'signal'>;

/** A service's handlers by the local names of its methods: each takes one message and gives one, or a stream of them. */
type Handlers = Record<string, (request: never, context: CallContext) => unknown>;

/**
 * Calls the handlers of a service in this same process. Messages are handed over as they are, nothing is encoded: a call costs microseconds,
 * where the library's own way through its protocol takes half a millisecond. An abort is for the handler to see; a time limit is refused, since nothing here would keep it.
 */
export function directTransport(handlers: object): Transport {
  const none = new Headers();
  const call = (
    method: { localName: string; input: DescMessage },
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    input: object,
  ) => {
    if (timeoutMs !== undefined)
      throw new RangeError(`${method.localName} is called in this process: no time limit can be set`);
    const handler = (handlers as Handlers)[method.localName];
    if (handler === undefined) throw new RangeError(`${method.localName} has no handler`);
    return handler(input as never, { signal: signal ?? new AbortController().signal });
  };
  return {
    async unary(method, signal, timeoutMs, _header, input) {
      const answer = await call(method, signal, timeoutMs, create(method.input, input));
      const message = create(method.output, answer as MessageInitShape<typeof method.output>);
      return { stream: false, service: method.parent, method, header: none, trailer: none, message };
    },

    async stream(method, signal, timeoutMs, _header, input) {
      const request = await first(input);
      const answers = call(method, signal, timeoutMs, create(method.input, request)) as AsyncIterable<
        MessageInitShape<typeof method.output>
      >;
      const messages = async function* () {
        for await (const answer of answers) yield create(method.output, answer);
      };
      return { stream: true, service: method.parent, method, header: none, trailer: none, message: messages() };
    },
  };
}

/** The one message of a call that answers with a stream. */
async function first<T>(messages: AsyncIterable<T>): Promise<T> {
  for await (const message of messages) return message;
  throw new RangeError('a call needs a message');
}
