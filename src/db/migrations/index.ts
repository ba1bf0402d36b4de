import type { Migration } from 'kysely/migration';
import * as foundation from './001-foundation.ts';
import * as lifecycle from './002-lifecycle.ts';
import * as builds from './003-builds.ts';
import * as secrets from './004-secrets.ts';
import * as endReason from './005-end-reason.ts';
import * as listByState from './006-list-by-state.ts';

/** Every change of the tables, in order of name. A migration that was released is never edited: a new one follows it. */
export const migrations: Record<string, Migration> = {
  '001-foundation': foundation,
  '002-lifecycle': lifecycle,
  '003-builds': builds,
  '004-secrets': secrets,
  '005-end-reason': endReason,
  '006-list-by-state': listByState,
};
