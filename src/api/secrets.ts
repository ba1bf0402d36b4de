import { type Static, Type } from 'typebox';
import type { SecretInfo, Secrets } from '../secrets/secrets.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { dateTime } from './date-time.ts';
import { failures } from './errors.ts';
import { decodeNextToken, encodeNextToken } from './list-cursor.ts';
import { type Api, DateTime, Nothing, StringMap } from './typebox-provider.ts';

interface Dependencies {
  secrets: Pick<Secrets, 'create' | 'update' | 'get' | 'list' | 'destroy'>;
  auth: Authentication;
}

const PAGE = 100;
const tags = ['secrets'];
/** Of ids in next tokens, which know no underscore. */
const ID_PREFIX = 'sec_';

const Secret = Type.Object(
  {
    secretID: Type.String(),
    name: Type.String({ description: 'In lower case' }),
    currentVersion: Type.Integer(),
    metadata: StringMap,
    createdAt: DateTime,
    updatedAt: DateTime,
  },
  { title: 'Secret', description: 'Never with its value' },
);

const NewSecret = Type.Object(
  {
    name: Type.String({ description: '1 to 128 letters, digits, - or _; not beginning with sec_' }),
    value: Type.String(),
    metadata: Type.Optional(StringMap),
  },
  { title: 'NewSecret' },
);

const SecretUpdate = Type.Object(
  { value: Type.String(), metadata: Type.Optional(StringMap) },
  { title: 'SecretUpdate' },
);

const Params = Type.Object({ secretID: Type.String({ description: 'ID or name' }) });

const ListQuery = Type.Object({
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: PAGE })),
  nextToken: Type.Optional(Type.String()),
});

export function serveSecrets(app: Api, { secrets, auth }: Dependencies): void {
  const onRequest = auth.team;
  const one = { params: Params, tags, ...byTeam };

  app.get(
    '/secrets',
    {
      onRequest,
      schema: {
        querystring: ListQuery,
        response: { 200: Type.Array(Secret), ...failures },
        tags,
        ...byTeam,
        summary: 'List secrets, a page at a time (next page: header X-Next-Token)',
      },
    },
    async (request, reply) => {
      const { limit = PAGE, nextToken } = request.query;
      const position = nextToken ? decodeNextToken(nextToken) : undefined;
      const after = position === undefined ? null : { createdAt: position.time, id: `${ID_PREFIX}${position.id}` };
      const found = await secrets.list(callerOf(request).team.id, limit + 1, after);
      const page = found.slice(0, limit);
      const last = page.at(-1);
      if (found.length > limit && last !== undefined)
        reply.header('X-Next-Token', encodeNextToken({ time: last.createdAt, id: last.id.slice(ID_PREFIX.length) }));
      return reply.send(page.map(secretOf));
    },
  );
  app.post(
    '/secrets',
    {
      onRequest,
      schema: { body: NewSecret, response: { 201: Secret, ...failures }, tags, ...byTeam, summary: 'Create a secret' },
    },
    async (request, reply) => {
      const { name, value, metadata = {} } = request.body;
      return reply.code(201).send(secretOf(await secrets.create(callerOf(request).team.id, name, { value, metadata })));
    },
  );
  app.get(
    '/secrets/:secretID',
    { onRequest, schema: { ...one, response: { 200: Secret, ...failures }, summary: 'Read about a secret' } },
    async (request) => secretOf(await secrets.get(callerOf(request).team.id, request.params.secretID)),
  );
  app.post(
    '/secrets/:secretID',
    {
      onRequest,
      schema: {
        ...one,
        body: SecretUpdate,
        response: { 200: Secret, ...failures },
        summary: 'Give a secret a new value',
      },
    },
    async (request) => {
      const { value, metadata } = request.body;
      return secretOf(await secrets.update(callerOf(request).team.id, request.params.secretID, value, metadata));
    },
  );
  app.delete(
    '/secrets/:secretID',
    { onRequest, schema: { ...one, response: { 204: Nothing('Deleted'), ...failures }, summary: 'Delete a secret' } },
    async (request, reply) => {
      await secrets.destroy(callerOf(request).team.id, request.params.secretID);
      return reply.code(204).send(undefined);
    },
  );
}

function secretOf(info: SecretInfo): Static<typeof Secret> {
  return {
    secretID: info.id,
    name: info.name,
    currentVersion: info.version,
    metadata: info.metadata,
    createdAt: dateTime(info.createdAt),
    updatedAt: dateTime(info.updatedAt),
  };
}
