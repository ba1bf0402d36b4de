import path from 'node:path';
import type { Config, RuntimeName } from '../core/config.ts';
import type { Log } from '../core/log.ts';
import { BuildCacheStore } from '../db/build-cache-store.ts';
import { BuildGarbageStore } from '../db/build-garbage-store.ts';
import { BuildStore } from '../db/build-store.ts';
import type { Database } from '../db/database.ts';
import type { TemplateStore } from '../db/template-store.ts';
import type { NodeClient } from '../node/client.ts';
import { ImagePull } from '../node/image-pull.ts';
import type { Node } from '../node/node.ts';
import { TemplateBuilds } from '../templates/builds.ts';
import { TemplateGarbage } from '../templates/garbage.ts';
import { TemplateImages } from '../templates/images.ts';
import { Uploads } from '../templates/uploads.ts';

const MIB = 1024 * 1024;

export interface BuildServices {
  builds: TemplateBuilds;
  buildStore: BuildStore;
  uploads: Uploads;
  stop(): Promise<void>;
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
  const garbage = new TemplateGarbage({
    garbage: new BuildGarbageStore(database),
    builds: buildStore,
    cache,
    uploads,
    layers: node.layers,
    layersInUse: () => node.layersInUse(),
    imageLayers: (since) => puller.layersUsedSince(since),
    removeSnapshot: (snapshotId) => node.removeSnapshot(snapshotId),
    log,
  });
  garbage.start();
  const stop = async () => {
    await garbage.stop();
    await builds.stop();
  };
  return { builds, buildStore, uploads, stop };
}
