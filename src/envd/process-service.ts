import { Code, ConnectError, type HandlerContext, type ServiceImpl } from '@connectrpc/connect';
import {
  type Process,
  type ProcessInput,
  type ProcessSelector,
  Signal,
  type StartRequest,
} from '../../proto/gen/process_pb.js';
import { newOperationId } from '../agent/client.ts';
import type { ProcessRef, StartOptions } from '../agent/contract.ts';
import { isAgentError } from '../agent/errors.ts';
import type { Log } from '../core/log.ts';
import { toConnectError, type Wording } from './connect-errors.ts';
import { type SandboxCall, sandboxCallOf } from './context.ts';
import { keepaliveIntervalMs } from './keepalive.ts';
import { eventsFromNow, newSubscriber, type Subscription, startProcess } from './process-stream.ts';

/** After its deadline a process is given this long to be reported dead before the stream ends without the report. */
const DEADLINE_GRACE_MS = 2_000;

/** The service process.Process. */
export function createProcessService(log: Log): ServiceImpl<typeof Process> {
  /** Runs one call, wording its failures. */
  const attempt = async <T>(call: SandboxCall, wording: Wording, action: () => Promise<T>): Promise<T> => {
    try {
      return await action();
    } catch (error) {
      throw toConnectError(error, call.user, wording, log);
    }
  };

  return {
    async list(_request, context) {
      const call = sandboxCallOf(context);
      const processes = await attempt(call, {}, async () => {
        await requireUser(call);
        return await call.agent.processes(context.signal);
      });
      return {
        processes: processes.map(({ pid, tag, cmd, args, env, cwd }) => ({
          pid,
          config: { cmd, args, envs: env, ...(cwd !== '' && { cwd }) },
          ...(tag !== undefined && { tag }),
        })),
      };
    },

    async *start(request, context) {
      const call = sandboxCallOf(context);
      const timeoutMs = context.timeoutMs();
      if (timeoutMs !== undefined && timeoutMs <= 0)
        throw new ConnectError('the operation timed out', Code.DeadlineExceeded);
      const options = startOptions(request, call.user, timeoutMs);
      const { signal, stop } = withGrace(call.gone, timeoutMs);
      try {
        const subscription = subscriptionOf(call, context, newSubscriber(), signal);
        const events = await attempt(call, startWording(options), () => startProcess(subscription, options));
        for await (const event of events) yield { event };
      } catch (error) {
        throw toConnectError(error, call.user, {}, log);
      } finally {
        stop();
      }
    },

    async *connect(request, context) {
      const call = sandboxCallOf(context);
      const process = processRef(request.process);
      const signal = AbortSignal.any([context.signal, call.gone]);
      const subscription = subscriptionOf(call, context, newSubscriber(), signal);
      const replay = context.requestHeader.get('x-sandbar-replay') === 'true';
      try {
        await requireUser(call);
        for await (const event of eventsFromNow(subscription, process, replay)) yield { event };
      } catch (error) {
        throw toConnectError(error, call.user, { NOT_FOUND: () => processNotFound(process) }, log);
      }
    },

    async update(request, context) {
      const call = sandboxCallOf(context);
      const process = processRef(request.process);
      const wording: Wording = {
        NOT_FOUND: () => processNotFound(process),
        NOT_A_TTY: () => new ConnectError('error resizing tty: tty not assigned to process', Code.Internal),
      };
      await attempt(call, wording, async () => {
        await requireUser(call);
        const size = request.pty?.size;
        if (size) await call.agent.resize(process, { cols: size.cols, rows: size.rows }, context.signal);
        else if (!(await isLive(call, process))) throw processNotFound(process);
      });
      return {};
    },

    async streamInput(requests, context) {
      const call = sandboxCallOf(context);
      let process: ProcessRef | undefined;
      for await (const { event } of requests) {
        if (event.case === 'start') process = processRef(event.value.process);
        else if (process === undefined) {
          throw new ConnectError('the first message must be a start event', Code.InvalidArgument);
        } else if (event.case === 'data') {
          await attempt(call, {}, () => requireUser(call));
          await writeInput(call, process, event.value.input, context.signal, log);
        }
      }
      return {};
    },

    async sendInput(request, context) {
      const call = sandboxCallOf(context);
      await attempt(call, {}, () => requireUser(call));
      await writeInput(call, processRef(request.process), request.input, context.signal, log);
      return {};
    },

    async sendSignal(request, context) {
      const call = sandboxCallOf(context);
      const process = processRef(request.process);
      if (request.signal !== Signal.SIGTERM && request.signal !== Signal.SIGKILL) {
        throw new ConnectError(`invalid signal: ${Signal[request.signal] ?? request.signal}`, Code.Unimplemented);
      }
      await attempt(call, { NOT_FOUND: () => processNotFound(process) }, async () => {
        await requireUser(call);
        await call.agent.signal(process, request.signal, context.signal);
      });
      return {};
    },

    async closeStdin(request, context) {
      const call = sandboxCallOf(context);
      const process = processRef(request.process);
      const wording: Wording = {
        NOT_FOUND: () => processNotFound(process),
        NOT_A_TTY: () => new ConnectError('error closing stdin: tty assigned to process', Code.Unknown),
      };
      await attempt(call, wording, async () => {
        await requireUser(call);
        await call.agent.closeStdin(process, context.signal);
      });
      return {};
    },
  };
}

function startOptions(request: StartRequest, user: string, timeoutMs: number | undefined): StartOptions {
  const { process, pty } = request;
  if (!process || process.cmd === '') throw new ConnectError('a command is required', Code.InvalidArgument);
  return {
    user,
    cmd: process.cmd,
    args: process.args,
    env: process.envs,
    cwd: process.cwd ?? '',
    ...(pty && { pty: { cols: pty.size?.cols ?? 0, rows: pty.size?.rows ?? 0 } }),
    ...(request.tag !== undefined && { tag: request.tag }),
    // Left out means a pipe: clients that know the field say false themselves.
    stdin: request.stdin ?? true,
    ...(timeoutMs !== undefined && { deadlineMs: Math.max(1, Math.ceil(timeoutMs)) }),
    operationId: newOperationId(),
  };
}

function startWording(options: StartOptions): Wording {
  const command = [options.cmd, ...options.args].join(' ');
  return {
    CWD: (error) => new ConnectError(`cwd '${error.path || options.cwd}' does not exist`, Code.InvalidArgument),
    SPAWN: (error) => new ConnectError(`error starting process '${command}': ${error.message}`, Code.InvalidArgument),
    EXHAUSTED: (error) =>
      new ConnectError(`error starting process '${command}': ${error.message}`, Code.ResourceExhausted),
  };
}

function subscriptionOf(
  call: SandboxCall,
  context: HandlerContext,
  subscriber: number,
  signal: AbortSignal,
): Subscription {
  const keepaliveMs = keepaliveIntervalMs(context.requestHeader.get('keepalive-ping-interval'));
  return { agent: call.agent, subscriber, keepaliveMs, signal };
}

/**
 * The agent kills the process at its deadline and reports it, with the last of the output; so the stream outlives the
 * deadline, and this ends it only when no report comes.
 */
function withGrace(gone: AbortSignal, timeoutMs: number | undefined): { signal: AbortSignal; stop: () => void } {
  if (timeoutMs === undefined) return { signal: gone, stop: () => undefined };
  const late = new AbortController();
  const timer = setTimeout(
    () => late.abort(new ConnectError('the operation timed out', Code.DeadlineExceeded)),
    timeoutMs + DEADLINE_GRACE_MS,
  );
  return { signal: AbortSignal.any([gone, late.signal]), stop: () => clearTimeout(timer) };
}

async function writeInput(
  call: SandboxCall,
  process: ProcessRef,
  input: ProcessInput | undefined,
  signal: AbortSignal,
  log: Log,
): Promise<void> {
  const stream = input?.input.case;
  if (input === undefined || stream === undefined) {
    throw new ConnectError('input must have stdin or pty', Code.Unimplemented);
  }
  const wording: Wording = {
    NOT_FOUND: () => processNotFound(process),
    STDIN_CLOSED: () => new ConnectError('error writing to stdin: stdin not enabled or closed', Code.Internal),
    NOT_A_TTY: () =>
      stream === 'pty'
        ? new ConnectError('error writing to tty: tty not assigned to process', Code.Internal)
        : new ConnectError(
            'error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin',
            Code.Internal,
          ),
  };
  try {
    await call.agent.writeInput(process, stream, input.input.value, signal);
  } catch (error) {
    throw toConnectError(error, call.user, wording, log);
  }
}

function processRef(selector: ProcessSelector | undefined): ProcessRef {
  switch (selector?.selector.case) {
    case 'pid':
      return { pid: selector.selector.value };
    case 'tag':
      return { tag: selector.selector.value };
    default:
      throw new ConnectError('a process must be selected by pid or tag', Code.InvalidArgument);
  }
}

function processNotFound(process: ProcessRef): ConnectError {
  const which = 'pid' in process ? `pid ${process.pid}` : `tag ${process.tag}`;
  return new ConnectError(`process with ${which} not found`, Code.NotFound);
}

async function isLive(call: SandboxCall, process: ProcessRef): Promise<boolean> {
  const processes = await call.agent.processes();
  return processes.some((live) => ('pid' in process ? live.pid === process.pid : live.tag === process.tag));
}

/** A user that was named must exist, also where the operation itself has no use for it. */
async function requireUser(call: SandboxCall): Promise<void> {
  if (call.user === '') return;
  try {
    await call.agent.stat({ user: call.user, path: '/' }, call.gone);
  } catch (error) {
    if (isAgentError(error, 'UNKNOWN_USER')) throw error;
  }
}
