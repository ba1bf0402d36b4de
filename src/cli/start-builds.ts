import path from 'node:path';
import type { Config, RuntimeName } from '../core/config.ts';
import type { Log } from '../core/log.ts';
import { BuildCacheStore } from '../db/build-cache-store.ts';
import { BuildStore } from '../db/build-store.ts';
import type { Database } from '../db/database.ts';
import type { TemplateStore } from '../db/template-store.ts';
import type { NodeClient } from '../node/client.ts';
import { ImagePull } from '../node/image-pull.ts';
import type { Node } from '../node/node.ts';
import { TemplateBuilds } from '../templates/builds.ts';
import { TemplateImages } from '../templates/images.ts';
import { Uploads } from '../templates/uploads.ts';

const MIB = 1024 * 1024;

export interface BuildServices {
  builds: TemplateBuilds;
  buildStore: BuildStore;
  uploads: Uploads;
}

/** Makes the parts that build templates, joins and starts them. */
export async function startBuilds(
  config: Config,
  runtime: RuntimeName,
  database: Database,
  templates: TemplateStore,
  node: Node,
  nodeClient: NodeClient,
  log: Log,
): Promise<BuildServices> {
  const uploads = new Uploads(path.join(config.stateDir, 'uploads'), config.diskSizeMb * MIB);
  const buildStore = new BuildStore(database);
  const cache = new BuildCacheStore(database);
  const puller = new ImagePull(path.join(config.stateDir, 'images'), node.layers, node.edits);
  await puller.start();
  const images = new TemplateImages({
    puller,
    cache,
    node: nodeClient,
    machine: node,
    runtime,
    whyEnded: (sandboxId) => builds.whyEnded(sandboxId),
    timeoutMs: config.buildStepSeconds * 1000,
  });
  const builds: TemplateBuilds = new TemplateBuilds({
    config,
    runtime,
    builds: buildStore,
    cache,
    templates,
    uploads,
    node: nodeClient,
    machine: node,
    images,
    log,
  });
  await builds.start();
  return { builds, buildStore, uploads };
}
