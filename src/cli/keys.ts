import type { Config } from '../core/config.ts';
import { openDatabase } from '../db/database.ts';
import { TeamStore } from '../db/team-store.ts';
import { Teams } from '../teams/teams.ts';
import { UsageError } from './usage-error.ts';

/** `sandbar keys create | list | revoke`: the API keys of the default team. Works beside a running service. */
export async function runKeys(config: Config, words: readonly string[], name: string | undefined): Promise<number> {
  const [action, keyId] = words;
  const run = actionOf(action, keyId, name);
  const database = await openDatabase(config);
  try {
    const teams = new Teams(new TeamStore(database));
    const { id: teamId } = await teams.defaultTeam();
    await run(teams, teamId);
    return 0;
  } finally {
    await database.destroy();
  }
}

type Action = (teams: Teams, teamId: string) => Promise<void>;

function actionOf(action: string | undefined, keyId: string | undefined, name: string | undefined): Action {
  if (name !== undefined && action !== 'create') throw new UsageError('--name goes with `sandbar keys create`');
  if (keyId !== undefined && action !== 'revoke')
    throw new UsageError(`unexpected '${keyId}' after 'sandbar keys ${action}'`);
  switch (action) {
    case 'create':
      return async (teams, teamId) => {
        const { value } = await teams.createKey(teamId, name ?? 'made on the command line');
        console.log(value);
      };
    case 'list':
      return async (teams, teamId) => {
        for (const key of await teams.listKeys(teamId)) {
          const masked = `${key.mask.prefix}${key.mask.maskedValuePrefix}…${key.mask.maskedValueSuffix}`;
          console.log([key.id, masked, `made ${day(key.createdAt)}`, `used ${day(key.lastUsed)}`, key.name].join('  '));
        }
      };
    case 'revoke':
      if (keyId === undefined)
        throw new UsageError('`sandbar keys revoke` needs the id of a key (`sandbar keys list`)');
      return async (teams, teamId) => {
        await teams.revokeKey(teamId, keyId);
        console.log(`revoked ${keyId}`);
      };
    default:
      throw new UsageError('keys: create, list or revoke?');
  }
}

function day(time: number | null): string {
  return time === null ? 'never     ' : new Date(time).toISOString().slice(0, 10);
}
