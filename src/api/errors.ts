import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { messageOf, SandbarError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';

/** `code` repeats the HTTP status: clients decide on it. */
export const ErrorBody = Type.Object(
  {
    code: Type.Integer({ description: 'HTTP status of the answer' }),
    message: Type.String(),
    error_code: Type.Optional(Type.String({ description: 'What failed, for programs' })),
  },
  { title: 'Error' },
);

/** The failures of a route, for its `response` schemas. */
export const failures = { '4xx': ErrorBody, '5xx': ErrorBody } as const;

/** Makes every failure, also of an unknown route, an ErrorBody. */
export function answerErrors(app: FastifyInstance, log: Log): void {
  app.setErrorHandler((error: FastifyError, request, reply) => {
    const { status, body } = answerTo(error);
    if (status >= 500 && !reply.raw.destroyed) logFailure(log, request, error);
    return reply.code(status).send(body);
  });
  app.setNotFoundHandler((request, reply) =>
    sendError(reply, 404, `no such endpoint: ${request.method} ${pathOf(request)}`),
  );
}

/** For errors of the framework before any route is found, such as a malformed path. */
export function answerFrameworkError(error: FastifyError, _request: FastifyRequest, reply: FastifyReply): void {
  const { status, body } = answerTo(error);
  void reply.code(status).send(body);
}

/** Path of a request without its query. */
export function pathOf(request: FastifyRequest): string {
  return request.url.split('?', 1)[0] ?? '';
}

function answerTo(error: FastifyError): { status: number; body: Static<typeof ErrorBody> } {
  if (error instanceof SandbarError) {
    const status = error.httpStatus;
    const body = { code: status, message: error.message };
    return { status, body: error.errorCode === undefined ? body : { ...body, error_code: error.errorCode } };
  }
  if (error.validation !== undefined) return plain(400, `validation error: ${error.message}`);
  const status = error.statusCode ?? 500;
  if (status < 500) return plain(status, error.message);
  // Nobody wrote this message for a client; the log has it.
  const body = { code: 500, message: 'Internal server error', error_code: 'internal_server_error' };
  return { status: 500, body };
}

function plain(status: number, message: string): { status: number; body: Static<typeof ErrorBody> } {
  return { status, body: { code: status, message } };
}

function sendError(reply: FastifyReply, status: number, message: string): FastifyReply {
  return reply.code(status).send({ code: status, message });
}

function logFailure(log: Log, request: FastifyRequest, error: Error): void {
  const fields = {
    method: request.method,
    path: pathOf(request),
    error: error.message,
    cause: error.cause === undefined ? undefined : messageOf(error.cause),
  };
  // A failure with a kind of its own (no capacity, a time limit) was foreseen; the rest needs to be looked into.
  if (error instanceof SandbarError && error.kind !== 'internal') log.warn('a request was not served', fields);
  else log.error('a request failed', { ...fields, stack: error.stack });
}
