import type { FastifyInstance, FastifyRequest } from 'fastify';
import { SandbarError } from '../core/errors.ts';
import type { TeamRow, UserRow } from '../db/schema.ts';
import type { Membership } from '../db/team-store.ts';
import type { Teams } from '../teams/teams.ts';

const CALLER = 'caller';

/** Who sent a request. */
export interface Caller {
  team: TeamRow;
  /** Known when an access token was shown, not for API keys. */
  user: UserRow | undefined;
  /** All teams the credentials open. */
  memberships: Membership[];
}

/** The credentials a route takes, for its `schema`. */
export const byTeam = { security: [{ ApiKeyAuth: [] }, { AccessTokenAuth: [] }] };
export const byUser = { security: [{ AccessTokenAuth: [] }] };

/** Hooks that run before a request is even parsed; each refuses with 401 what it does not know. */
export interface Authentication {
  /** An API key, or an access token of a member (`X-Team-ID` chooses the team, else the user's default one). */
  team(request: FastifyRequest): Promise<void>;
  /** An access token. */
  user(request: FastifyRequest): Promise<void>;
}

export function authentication(
  app: FastifyInstance,
  teams: Pick<Teams, 'authenticateKey' | 'authenticateToken'>,
): Authentication {
  app.decorateRequest(CALLER, null);
  const byToken = async (request: FastifyRequest): Promise<Caller> => {
    const token = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
    if (token === undefined) throw new SandbarError('unauthenticated', 'authorization header is missing');
    const { user, teams: memberships } = await teams.authenticateToken(token);
    const wanted = request.headers['x-team-id'];
    const member = wanted === undefined ? memberships[0] : memberships.find(({ team }) => team.id === wanted);
    if (member === undefined) throw new SandbarError('forbidden', "You don't have access to this team");
    return { team: member.team, user, memberships };
  };
  const byKey = async (key: string): Promise<Caller> => {
    const team = await teams.authenticateKey(key);
    return { team, user: undefined, memberships: [{ team, isDefault: true }] };
  };
  return {
    async team(request) {
      const key = request.headers['x-api-key'];
      request.setDecorator<Caller>(CALLER, typeof key === 'string' ? await byKey(key) : await byToken(request));
    },
    async user(request) {
      request.setDecorator<Caller>(CALLER, await byToken(request));
    },
  };
}

/** Who sent a request that passed one of the hooks. */
export function callerOf(request: FastifyRequest): Caller {
  const caller = request.getDecorator<Caller | null>(CALLER);
  if (caller === null) throw new SandbarError('internal', `${request.url} is served without authentication`);
  return caller;
}
