import path from 'node:path';
import type { Config } from '../core/config.ts';
import { Log } from '../core/log.ts';
import { BuildCacheStore } from '../db/build-cache-store.ts';
import { BuildGarbageStore } from '../db/build-garbage-store.ts';
import { BuildStore } from '../db/build-store.ts';
import { type Database, openDatabase } from '../db/database.ts';
import { TemplateStore } from '../db/template-store.ts';
import { layersInUse } from '../node/disk/layer-users.ts';
import { Layers } from '../node/disk/layers.ts';
import { RootEdits } from '../node/disk/root-edits.ts';
import { HostHelper } from '../node/host-helper.ts';
import { ImagePull } from '../node/image-pull.ts';
import { Image } from '../node/images.ts';
import { Layout } from '../node/layout.ts';
import { NO_PATIENCE, PATIENCE, TemplateGarbage } from '../templates/garbage.ts';
import { Uploads } from '../templates/uploads.ts';
import { UsageError } from './usage-error.ts';

const MB = 1024 * 1024;

export interface TemplatesOptions {
  /** Forgets the cache of steps too. */
  all: boolean;
  /** Builds without the cache. */
  force: boolean;
}

/** `sandbar templates list | prune | build`. The first two work beside a running service. */
export async function runTemplates(
  config: Config,
  [action, name, ...rest]: readonly string[],
  options: TemplatesOptions,
): Promise<number> {
  if (rest.length > 0 || (name !== undefined && action !== 'build'))
    throw new UsageError(`unexpected '${rest[0] ?? name}' after 'sandbar templates ${action}'`);
  switch (action) {
    case 'list':
      return withDatabase(config, (database) => list(config, database));
    case 'prune':
      return withDatabase(config, (database) => prune(config, database, options.all));
    case 'build': {
      if (name !== 'code-interpreter') throw new UsageError('templates build: code-interpreter is what can be built');
      const { buildRecipe } = await import('./build-recipe.ts');
      const { codeInterpreterRecipe } = await import('../templates/code-interpreter/recipe.ts');
      return buildRecipe(config, codeInterpreterRecipe(), { force: options.force });
    }
    default:
      throw new UsageError('templates: list, prune or build?');
  }
}

async function list(config: Config, database: Database): Promise<number> {
  const templates = new TemplateStore(database);
  const { layers } = storeOf(config);
  const teams = await database.selectFrom('teams').selectAll().execute();
  const shown = new Map<string, string>();
  for (const team of teams) {
    for (let cursor = null, more = true; more; ) {
      const page = await templates.list(team.id, 100, cursor);
      for (const { template, names, build } of page.items) {
        const tags = (await templates.listTags(template.id)).map(({ tag }) => tag);
        const line = [
          template.id,
          (names[0] ?? '-').padEnd(28),
          (build?.status ?? '-').padEnd(8),
          `${build?.layers.length ?? 0} layers`.padEnd(10),
          `${template.buildCount} builds`.padEnd(10),
          `${template.spawnCount} sandboxes`.padEnd(14),
          tags.join(','),
        ].join('  ');
        shown.set(template.id, line);
      }
      cursor = page.next;
      more = cursor !== null;
    }
  }
  for (const line of shown.values()) console.log(line);
  const all = await layers.list();
  const unused = new Set(await garbageOf(config, database).unusedLayers(Date.now()));
  const sizes = await Promise.all(all.map(async ({ name }) => ({ name, bytes: await layers.size(name) })));
  const total = sizes.reduce((sum, { bytes }) => sum + bytes, 0);
  const free = sizes.reduce((sum, { name, bytes }) => sum + (unused.has(name) ? bytes : 0), 0);
  console.log(
    `${shown.size} templates, ${all.length} layers, ${Math.round(total / MB)} MB; ${unused.size} layers with ${Math.round(free / MB)} MB are in nobody's use`,
  );
  return 0;
}

async function prune(config: Config, database: Database, all: boolean): Promise<number> {
  const collected = await garbageOf(config, database).collect(all ? NO_PATIENCE : { ...PATIENCE, buildMs: 0 });
  console.log(
    `removed ${collected.builds} builds, ${collected.layers.length} layers, ${collected.outcomes} remembered steps, ${Math.round(collected.uploadedBytes / MB)} MB of uploads`,
  );
  return 0;
}

function garbageOf(config: Config, database: Database): TemplateGarbage {
  const { layout, layers, puller } = storeOf(config);
  return new TemplateGarbage({
    garbage: new BuildGarbageStore(database),
    builds: new BuildStore(database),
    cache: new BuildCacheStore(database),
    uploads: new Uploads(path.join(config.stateDir, 'uploads'), 0),
    layers,
    layersInUse: () => layersInUse(layout),
    imageLayers: (since) => puller.layersUsedSince(since),
    removeSnapshot: (snapshotId) => new Image(path.join(layout.snapshotsDir, snapshotId)).remove(),
    log: new Log('warn'),
  });
}

/** The layers of the state directory; nothing is mounted or run for what is done with them here. */
function storeOf(config: Config): { layout: Layout; layers: Layers; puller: ImagePull } {
  const layout = new Layout(config.stateDir);
  const layers = new Layers(layout, new HostHelper('/bin/false', new Log('error')));
  return {
    layout,
    layers,
    puller: new ImagePull(path.join(config.stateDir, 'images'), layers, new RootEdits('/bin/false')),
  };
}

async function withDatabase(config: Config, work: (database: Database) => Promise<number>): Promise<number> {
  const database = await openDatabase(config);
  try {
    return await work(database);
  } finally {
    await database.destroy();
  }
}
