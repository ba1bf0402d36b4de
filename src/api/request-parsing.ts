import { Ajv, type Options } from 'ajv';
import formats from 'ajv-formats';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { messageOf, SandbarError } from '../core/errors.ts';

/** JSON bodies, and validators for all parts of a request. */
export function parseRequests(app: FastifyInstance): void {
  parseBodies(app);
  validate(app);
}

/** For routes whose body may be left out: an absent one counts as `{}`. */
export async function optionalBody(request: FastifyRequest): Promise<void> {
  request.body ??= {};
}

/** For comma-joined arrays in the query: `state=running,paused`, also when the parameter is repeated. */
export function commaList(name: string): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  return async (request) => {
    const query = request.query as Record<string, unknown>;
    if (query[name] === undefined) return;
    const items = [query[name]].flat().flatMap((text) => String(text).split(','));
    const given = items.map((item) => item.trim()).filter((item) => item !== '');
    if (given.length > 0) query[name] = given;
    else delete query[name];
  };
}

function parseBodies(app: FastifyInstance): void {
  // Refuses keys that would change an object's prototype.
  const parseJson = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body: string, done) => {
    // Clients send the type also with requests that have no body; the schema of the route says whether one is needed.
    if (body === '') return done(null, undefined);
    parseJson(request, body, (error, value) => {
      if (error === null) done(null, value);
      else done(new SandbarError('invalid', `Error when parsing request: ${messageOf(error)}`));
    });
  });
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    if (body.length === 0) return done(null, undefined);
    const type = request.headers['content-type'] ?? 'none';
    done(new SandbarError('invalid', `Error when parsing request: Content-Type must be application/json, not ${type}`));
  });
}

function validate(app: FastifyInstance): void {
  // Text in a path or a query becomes a number where the schema wants one; in JSON a number in quotes is a mistake.
  const ofText = validator({ coerceTypes: true });
  const ofJson = validator({ coerceTypes: false });
  app.setValidatorCompiler(({ schema, httpPart }) => (httpPart === 'body' ? ofJson : ofText).compile(schema as object));
}

function validator(options: Options): Ajv {
  const ajv = new Ajv({ ...options, useDefaults: true, removeAdditional: false, strict: false });
  formats.default(ajv);
  return ajv;
}
