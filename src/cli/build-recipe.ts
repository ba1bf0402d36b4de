import { setTimeout as delay } from 'node:timers/promises';
import type { Config } from '../core/config.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { BuildStore } from '../db/build-store.ts';
import { type Database, openDatabase } from '../db/database.ts';
import { TeamStore } from '../db/team-store.ts';
import { GLOBAL_NAMESPACE, TemplateStore } from '../db/template-store.ts';
import { Teams } from '../teams/teams.ts';
import { inlineArchive } from '../templates/build/inline-archive.ts';
import type { Recipe } from '../templates/code-interpreter/recipe.ts';

const POLL_MS = 500;

interface Status {
  status: string;
  logEntries: { level: string; message: string }[];
  reason?: { message: string };
}

/** Builds a recipe's template through the service, as a client would, and gives its name to every team. */
export async function buildRecipe(config: Config, recipe: Recipe, options: { force: boolean }): Promise<number> {
  const service = await reachService(config);
  const database = await openDatabase(config);
  const teams = new Teams(new TeamStore(database));
  try {
    const { id: teamId } = await teams.defaultTeam();
    const key = await teams.createKey(teamId, `building ${recipe.name}`);
    try {
      const templateId = await build(service.url, key.value, recipe, options.force);
      if (templateId === undefined) return 1;
      await publish(database, recipe.name, templateId);
      console.log(`${recipe.name} is ready: sandboxes of every team can be made from it`);
      return 0;
    } finally {
      await teams.revokeKey(teamId, key.key.id);
    }
  } finally {
    await teams.stop();
    await database.destroy();
    await service.stop();
  }
}

/** The service that runs here, or one that is started for the time of the build. */
async function reachService(config: Config): Promise<{ url: string; stop(): Promise<void> }> {
  const url = `${config.tls === undefined ? 'http' : 'https'}://127.0.0.1:${config.port}`;
  const answer = await fetch(`${url}/health`).catch(() => undefined);
  if (answer?.ok) return { url, stop: async () => undefined };
  const { startService } = await import('./serve.ts');
  const service = await startService({ ...config, host: '127.0.0.1', port: 0, tls: undefined });
  return { url: `http://127.0.0.1:${service.port}`, stop: service.stop };
}

/** Resolves to the template's ID; undefined when the build failed, which is then printed. */
async function build(url: string, key: string, recipe: Recipe, force: boolean): Promise<string | undefined> {
  const call = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { 'x-api-key': key, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new SandbarError('internal', `${method} ${path}: ${response.status} ${text}`);
    return text === '' ? (undefined as T) : JSON.parse(text);
  };
  const { templateID, buildID } = await call<{ templateID: string; buildID: string }>('POST', '/v3/templates', {
    name: recipe.name,
  });
  for (const [hash, files] of recipe.uploads) {
    const link = await call<{ present: boolean; url: string }>('GET', `/templates/${templateID}/files/${hash}`);
    if (link.present) continue;
    const archive = Buffer.concat(await Array.fromAsync(inlineArchive(files)));
    const response = await fetch(link.url, { method: 'PUT', body: archive });
    if (!response.ok) throw new SandbarError('internal', `upload: ${response.status} ${await response.text()}`);
  }
  await call('POST', `/v2/templates/${templateID}/builds/${buildID}`, { ...recipe.build, force });
  for (let offset = 0; ; ) {
    const status = await call<Status>('GET', `/templates/${templateID}/builds/${buildID}/status?logsOffset=${offset}`);
    for (const { message } of status.logEntries) console.log(message);
    offset += status.logEntries.length;
    if (status.logEntries.length > 0) continue;
    if (status.status === 'ready') return templateID;
    if (status.status === 'error') {
      console.error(`sandbar: the build failed: ${status.reason?.message ?? 'unknown'}`);
      return undefined;
    }
    await delay(POLL_MS);
  }
}

/** The bare name means this template for everybody from now on. */
async function publish(database: Database, name: string, templateId: string): Promise<void> {
  const templates = new TemplateStore(database);
  const now = Date.now();
  await new BuildStore(database).setPublic(templateId, true, now);
  const taken = await templates.addAlias(GLOBAL_NAMESPACE, name, templateId, now);
  if (taken) return;
  await database
    .updateTable('templateAliases')
    .set({ templateId })
    .where('namespace', '=', GLOBAL_NAMESPACE)
    .where('alias', '=', name)
    .execute()
    .catch((error: unknown) => {
      throw new SandbarError('internal', `the name ${name} cannot be given: ${messageOf(error)}`);
    });
}
