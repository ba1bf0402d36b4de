import { type Static, Type } from 'typebox';
import type { Config } from '../core/config.ts';
import { SandbarError } from '../core/errors.ts';
import type { ForkResult, Sandboxes } from '../sandboxes/contract.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { checkTimeout } from './create-sandbox.ts';
import { ErrorBody, failures } from './errors.ts';
import { optionalBody } from './request-parsing.ts';
import { parseSandboxId } from './sandbox-id.ts';
import { Sandbox, SandboxParams, V1_TIMEOUT_SECONDS } from './sandbox-schemas.ts';
import { sandboxOf } from './sandbox-views.ts';
import { type Api, INT32_MAX, Nothing } from './typebox-provider.ts';

interface Dependencies {
  sandboxes: Sandboxes;
  config: Pick<Config, 'maxTimeoutSeconds'>;
  auth: Authentication;
}

const tags = ['sandboxes'];
const Memory = Type.Optional(Type.Boolean({ default: true, description: 'false: only the files' }));

const PauseBody = Type.Object(
  {
    memory: Memory,
    requireHealthyGuest: Type.Optional(
      Type.Boolean({ default: false, description: 'Refuse (503) while the agent in the sandbox does not answer' }),
    ),
  },
  { title: 'PauseSandbox' },
);

const ResumeBody = Type.Object(
  {
    timeout: Type.Optional(Type.Integer({ maximum: INT32_MAX, default: V1_TIMEOUT_SECONDS })),
    autoPause: Type.Optional(Type.Boolean({ deprecated: true, description: 'Changes what happens at the deadline' })),
    memory: Memory,
  },
  { title: 'ResumedSandbox' },
);

const ForkBody = Type.Object(
  {
    timeout: Type.Optional(Type.Integer({ maximum: INT32_MAX, default: V1_TIMEOUT_SECONDS })),
    count: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: 1 })),
  },
  { title: 'SandboxFork' },
);

const ForkAnswer = Type.Object(
  { sandbox: Type.Optional(Sandbox), error: Type.Optional(ErrorBody) },
  { title: 'SandboxForkResult', description: 'The new sandbox, or why there is none' },
);

/** Pause, resume, fork. */
export function serveLifecycle(app: Api, { sandboxes, config, auth }: Dependencies): void {
  const onRequest = auth.team;
  const one = { params: SandboxParams, tags, ...byTeam };
  const lifeOf = (seconds: number) => checkTimeout(aboveZero(seconds), config.maxTimeoutSeconds);

  app.post(
    '/sandboxes/:sandboxID/pause',
    {
      onRequest,
      preValidation: optionalBody,
      schema: {
        ...one,
        body: PauseBody,
        response: { 204: Nothing('Paused'), ...failures },
        summary: 'Pause a sandbox',
      },
    },
    async (request, reply) => {
      const id = parseSandboxId(request.params.sandboxID);
      const { memory = true, requireHealthyGuest: requireAgent = false } = request.body;
      await sandboxes.pause(callerOf(request).team.id, id, { memory, requireAgent });
      return reply.code(204).send(undefined);
    },
  );
  app.post(
    '/sandboxes/:sandboxID/resume',
    {
      onRequest,
      preValidation: optionalBody,
      schema: {
        ...one,
        body: ResumeBody,
        response: { 201: Sandbox, ...failures },
        summary: 'Resume a paused sandbox',
        deprecated: true,
      },
    },
    async (request, reply) => {
      const { timeout = V1_TIMEOUT_SECONDS, memory = true, autoPause } = request.body;
      const options = {
        timeoutSeconds: lifeOf(timeout),
        memory,
        ...(autoPause !== undefined && { autoPause }),
      };
      const id = parseSandboxId(request.params.sandboxID);
      return reply.code(201).send(sandboxOf(await sandboxes.resume(callerOf(request).team.id, id, options)));
    },
  );
  app.post(
    '/sandboxes/:sandboxID/fork',
    {
      onRequest,
      preValidation: optionalBody,
      schema: {
        ...one,
        body: ForkBody,
        response: { 201: Type.Array(ForkAnswer), ...failures },
        summary: 'Copy a running sandbox',
      },
    },
    async (request, reply) => {
      const { timeout = V1_TIMEOUT_SECONDS, count = 1 } = request.body;
      const options = { timeoutSeconds: lifeOf(timeout), count };
      const id = parseSandboxId(request.params.sandboxID);
      const results = await sandboxes.fork(callerOf(request).team.id, id, options);
      return reply.code(201).send(results.map(forkAnswerOf));
    },
  );
}

function aboveZero(seconds: number): number {
  if (seconds <= 0) throw new SandbarError('invalid', 'Timeout must be greater than 0');
  return seconds;
}

function forkAnswerOf(result: ForkResult): Static<typeof ForkAnswer> {
  if ('row' in result) return { sandbox: sandboxOf(result.row) };
  const { httpStatus: code, message, errorCode } = result.error;
  return { error: { code, message, ...(errorCode !== undefined && { error_code: errorCode }) } };
}
