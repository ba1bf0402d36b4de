import { type Static, Type } from 'typebox';
import type { ApiKeyRow, Mask, UserRow } from '../db/schema.ts';
import type { Teams } from '../teams/teams.ts';
import { type Authentication, byUser, callerOf } from './auth.ts';
import { dateTime } from './date-time.ts';
import { failures } from './errors.ts';
import { type Api, DateTime, Nothing } from './typebox-provider.ts';

interface Dependencies {
  teams: Pick<Teams, 'createKey' | 'listKeys' | 'renameKey' | 'revokeKey'>;
  auth: Authentication;
}

const Team = Type.Object(
  { teamID: Type.String(), name: Type.String(), apiKey: Type.String(), isDefault: Type.Boolean() },
  { title: 'Team' },
);

const User = Type.Object({ id: Type.String({ format: 'uuid' }), email: Type.String() });

const keyFields = {
  id: Type.String({ format: 'uuid' }),
  name: Type.String(),
  mask: Type.Object({
    prefix: Type.String(),
    valueLength: Type.Integer(),
    maskedValuePrefix: Type.String(),
    maskedValueSuffix: Type.String(),
  } satisfies Record<keyof Mask, unknown>),
  createdAt: DateTime,
  createdBy: Type.Union([User, Type.Null()]),
  lastUsed: Type.Union([DateTime, Type.Null()]),
};
const ApiKey = Type.Object(keyFields, { title: 'TeamAPIKey' });
const CreatedApiKey = Type.Object({ ...keyFields, key: Type.String() }, { title: 'CreatedTeamAPIKey' });

// PostgreSQL's text takes every character but NUL.
const KeyName = Type.Object({ name: Type.String({ minLength: 1, maxLength: 256, pattern: '^[^\\u0000]*$' }) });
const KeyParams = Type.Object({ apiKeyID: Type.String() });

const tags = ['teams'];

export function serveTeams(app: Api, { teams, auth }: Dependencies): void {
  const onRequest = auth.user;

  app.get(
    '/teams',
    {
      onRequest,
      schema: { response: { 200: Type.Array(Team), ...failures }, tags, ...byUser, summary: "The user's teams" },
    },
    async (request) => {
      const { memberships, user } = callerOf(request);
      // Keys are stored hashed, so none can be shown again: each log-in gets one of its own.
      return Promise.all(
        memberships.map(async ({ team, isDefault }) => {
          const { value } = await teams.createKey(team.id, 'CLI login', user?.id ?? null);
          return { teamID: team.id, name: team.name, apiKey: value, isDefault };
        }),
      );
    },
  );
  app.get(
    '/api-keys',
    {
      onRequest,
      schema: { response: { 200: Type.Array(ApiKey), ...failures }, tags, ...byUser, summary: 'List API keys' },
    },
    async (request) => {
      const keys = await teams.listKeys(callerOf(request).team.id);
      return keys.map((key) => apiKeyOf(key, key.creator));
    },
  );
  app.post(
    '/api-keys',
    {
      onRequest,
      schema: {
        body: KeyName,
        response: { 201: CreatedApiKey, ...failures },
        tags,
        ...byUser,
        summary: 'Make an API key; its value is shown this once',
      },
    },
    async (request, reply) => {
      const { team, user } = callerOf(request);
      const { key, value } = await teams.createKey(team.id, request.body.name, user?.id ?? null);
      return reply.code(201).send({ ...apiKeyOf(key, user ?? null), key: value });
    },
  );
  app.patch(
    '/api-keys/:apiKeyID',
    {
      onRequest,
      schema: {
        params: KeyParams,
        body: KeyName,
        response: { 202: Nothing('Renamed'), ...failures },
        tags,
        ...byUser,
        summary: 'Rename an API key',
      },
    },
    async (request, reply) => {
      await teams.renameKey(callerOf(request).team.id, request.params.apiKeyID, request.body.name);
      return reply.code(202).send(undefined);
    },
  );
  app.delete(
    '/api-keys/:apiKeyID',
    {
      onRequest,
      schema: {
        params: KeyParams,
        response: { 204: Nothing('Revoked'), ...failures },
        tags,
        ...byUser,
        summary: 'Revoke an API key',
      },
    },
    async (request, reply) => {
      await teams.revokeKey(callerOf(request).team.id, request.params.apiKeyID);
      return reply.code(204).send(undefined);
    },
  );
}

function apiKeyOf(key: ApiKeyRow, creator: UserRow | null): Static<typeof ApiKey> {
  return {
    id: key.id,
    name: key.name,
    mask: key.mask,
    createdAt: dateTime(key.createdAt),
    createdBy: creator === null ? null : { id: creator.id, email: creator.email },
    lastUsed: key.lastUsed === null ? null : dateTime(key.lastUsed),
  };
}
