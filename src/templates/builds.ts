import { cpus } from 'node:os';
import type { Readable } from 'node:stream';
import type { Config, RuntimeName } from '../core/config.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { BuildCacheStore } from '../db/build-cache-store.ts';
import type { BuildStore } from '../db/build-store.ts';
import type { TeamRow, TemplateBuildRow, TemplateRow } from '../db/schema.ts';
import { DEFAULT_TAG, parseTemplateReference, type TemplateReference } from '../db/template-reference.ts';
import { mayUse, type TemplateStore } from '../db/template-store.ts';
import type { NodeClient } from '../node/client.ts';
import type { BaseParts } from './build/bases.ts';
import { BuildFailure } from './build/failure.ts';
import { BuildLog, type Saying } from './build/log.ts';
import type { BuildMachine } from './build/machine.ts';
import { BuildRun, type RunParts } from './build/run.ts';
import { SharedWork } from './build/shared-work.ts';
import { Slots } from './build/slots.ts';
import { DEFAULT_CPU_COUNT, DEFAULT_MEMORY_MB, ENVD_VERSION } from './builtin.ts';
import type { BuildPlan } from './contract.ts';
import { checkResources } from './resources.ts';
import type { Uploads } from './uploads.ts';

export interface BuildsParts {
  config: Pick<Config, 'diskSizeMb' | 'buildStepSeconds' | 'maxBuilds'>;
  runtime: RuntimeName;
  builds: BuildStore;
  cache: BuildCacheStore;
  templates: TemplateStore;
  uploads: Uploads;
  node: NodeClient;
  machine: BuildMachine;
  images: Pick<BaseParts, 'fromImage'>;
  log: Log;
}

/** Who asks for a build. */
export interface BuildCaller {
  team: Pick<TeamRow, 'id' | 'slug'>;
  userId: string | null;
}

export interface BuildRequest {
  /** `[namespace/]name[:tag]`; undefined: a template without a name. */
  name: string | undefined;
  tags: readonly string[];
  cpuCount: number | undefined;
  memoryMb: number | undefined;
  /** Least room for what a sandbox writes. */
  minFreeDiskMb: number | undefined;
}

/** Memory that steps of a build have at least: what builds a small sandbox is often larger than it. */
const LEAST_BUILD_MEMORY_MB = 1024;
const READY_TIMEOUT_MS = 600_000;
const STOPPED = 'the service was stopped during the build: build again';

/** Builds of templates: from the request over the steps to the tags that point at what came out. */
export class TemplateBuilds {
  readonly #parts: BuildsParts;
  readonly #shared = new SharedWork<string[], Saying>();
  readonly #slots = new Slots(Math.max(2, cpus().length));
  readonly #running = new Map<string, { cancel: AbortController; ended: Promise<void> }>();
  readonly #ends = new Map<string, string>();
  readonly #stop = new AbortController();

  constructor(parts: BuildsParts) {
    this.#parts = parts;
  }

  /** Ends what an earlier run of the service left half built. */
  async start(): Promise<void> {
    await this.#parts.uploads.start();
    for (const { id, snapshotId } of await this.#parts.builds.underWay()) {
      await this.#parts.builds.fail(id, { message: STOPPED }, Date.now());
      if (snapshotId !== null) await this.#parts.node.removeSnapshot({ snapshotId });
    }
    void this.#hearEnds();
  }

  async stop(): Promise<void> {
    for (const { cancel } of this.#running.values()) cancel.abort(new BuildFailure(STOPPED));
    await Promise.all([...this.#running.values()].map(({ ended }) => ended));
    this.#stop.abort();
  }

  /** Registers a build that waits to be started. Builds of the same template that would set the same tag are given up. */
  async request(
    caller: BuildCaller,
    request: BuildRequest,
  ): Promise<{ template: TemplateRow; build: TemplateBuildRow; tags: string[] }> {
    const { team } = caller;
    const name = request.name === undefined ? undefined : ownName(team, request.name);
    const tags = tagsOf(name, request.tags);
    const resources = {
      cpuCount: request.cpuCount ?? DEFAULT_CPU_COUNT,
      memoryMb: request.memoryMb ?? DEFAULT_MEMORY_MB,
      diskSizeMb: Math.max(this.#parts.config.diskSizeMb, request.minFreeDiskMb ?? 0),
    };
    checkResources(resources);
    const made = await this.#parts.builds.request({
      team,
      name,
      tags,
      userId: caller.userId,
      content: { ...resources, envdVersion: ENVD_VERSION },
      now: Date.now(),
    });
    await this.#cancelOthers(made.template.id, made.build.id, tags);
    return { ...made, tags };
  }

  /** Starts a waiting build and resolves when it has begun. */
  async begin(team: Pick<TeamRow, 'id' | 'slug'>, build: TemplateBuildRow, plan: BuildPlan): Promise<void> {
    const { builds, config } = this.#parts;
    if (this.#stop.signal.aborted) throw new SandbarError('unavailable', 'the service is stopping');
    if ((await builds.countUnderWay(team.id)) >= config.maxBuilds)
      throw new SandbarError(
        'rate_limited',
        `you have reached the maximum number of concurrent template builds (${config.maxBuilds}). Wait for one to end or raise SANDBAR_MAX_BUILDS.`,
      );
    if (!(await builds.advance(build.id, 'waiting', 'building', Date.now())))
      throw new SandbarError('invalid', 'build is not in waiting state');
    const cancel = new AbortController();
    const ended = this.#run(team, build, plan, cancel.signal);
    this.#running.set(build.id, { cancel, ended });
    void ended.finally(() => this.#running.delete(build.id));
  }

  /** Gives up every unfinished build of a template. Resolves when nothing of them is left. */
  async cancelAll(templateId: string, why: string): Promise<void> {
    for (const { buildId } of await this.#parts.builds.unfinished(templateId)) await this.#cancel(buildId, why);
  }

  /** A template of the caller's own team. */
  async own(team: Pick<TeamRow, 'id' | 'slug'>, reference: string): Promise<TemplateRow> {
    const template = await this.#parts.templates.find(reference, team);
    if (template === undefined) throw new SandbarError('not_found', `template '${reference}' not found`);
    if (template.teamId !== team.id)
      throw mayUse(team.id, template)
        ? new SandbarError('forbidden', `You don't have access to template '${reference}'`)
        : new SandbarError('not_found', `template '${reference}' not found`);
    return template;
  }

  /** Those of the steps' archives that were not uploaded yet. */
  isUploaded(team: Pick<TeamRow, 'id'>, filesHash: string): boolean {
    return this.#parts.uploads.has(team.id, filesHash);
  }

  /** Why a sandbox of a build ended by itself, where that is known. */
  whyEnded(sandboxId: string): string | undefined {
    return this.#ends.get(sandboxId);
  }

  async #cancelOthers(templateId: string, buildId: string, tags: string[]): Promise<void> {
    for (const other of await this.#parts.builds.unfinished(templateId)) {
      if (other.buildId === buildId || !other.tags.some((tag) => tags.includes(tag))) continue;
      await this.#cancel(other.buildId, 'the build was cancelled: a newer build of the same template was requested');
    }
  }

  async #cancel(buildId: string, why: string): Promise<void> {
    const running = this.#running.get(buildId);
    if (running === undefined) {
      await this.#parts.builds.fail(buildId, { message: why }, Date.now());
      return;
    }
    running.cancel.abort(new BuildFailure(why));
    await running.ended;
  }

  /** Never rejects: whatever happens ends in the build's row. */
  async #run(
    team: Pick<TeamRow, 'id' | 'slug'>,
    build: TemplateBuildRow,
    plan: BuildPlan,
    signal: AbortSignal,
  ): Promise<void> {
    const { builds } = this.#parts;
    const log = new BuildLog(builds, build.id);
    const service = this.#parts.log.with({ build: build.id, template: build.templateId });
    service.info('build began');
    const began = Date.now();
    try {
      const tags = await builds.tagsOf(build.id);
      const outcome = await new BuildRun(this.#runParts(team, build, log), plan, signal).run();
      signal.throwIfAborted();
      await log.close();
      const done = await builds.finish(build.id, outcome, tags, Date.now());
      if (!done) await this.#dropSnapshot(outcome.snapshotId);
      service.info('build is ready', { seconds: Math.round((Date.now() - began) / 100) / 10 });
    } catch (error) {
      await this.#fail(build, log, signal.aborted ? signal.reason : error, service).catch((worse: unknown) =>
        service.error('a failed build cannot be noted', { error: messageOf(worse) }),
      );
    }
  }

  async #fail(build: TemplateBuildRow, log: BuildLog, error: unknown, service: Log): Promise<void> {
    const { builds, templates } = this.#parts;
    const foreseen = error instanceof BuildFailure;
    const failure = foreseen
      ? error
      : new BuildFailure('the build failed because of an error of the service; its log has the details');
    if (foreseen) service.info('build failed', { reason: failure.message, step: failure.step });
    else
      service.error('a build failed', {
        error: messageOf(error),
        stack: error instanceof Error ? error.stack : undefined,
      });
    log.add('error', `Build failed: ${failure.message}`, failure.step ?? null);
    await log.close().catch((worse: unknown) => service.warn('a log is not whole', { error: messageOf(worse) }));
    const snapshotId = (await templates.getBuild(build.id))?.snapshotId ?? null;
    await builds.fail(build.id, failure.reason, Date.now());
    await this.#dropSnapshot(snapshotId);
  }

  async #dropSnapshot(snapshotId: string | null): Promise<void> {
    if (snapshotId !== null) await this.#parts.node.removeSnapshot({ snapshotId });
  }

  #runParts(team: Pick<TeamRow, 'id' | 'slug'>, build: TemplateBuildRow, log: BuildLog): RunParts {
    const { cpuCount, memoryMb, diskSizeMb } = build;
    const { uploads, images, config, builds, cache, templates, node, machine, runtime } = this.#parts;
    return {
      team,
      builds,
      cache,
      templates,
      node,
      machine,
      runtime,
      log,
      shared: this.#shared,
      slots: this.#slots,
      fromImage: (...args) => images.fromImage(...args),
      openUpload: (filesHash): Promise<Readable | undefined> => uploads.open(team.id, filesHash),
      whyEnded: (sandboxId) => this.whyEnded(sandboxId),
      owner: { templateId: build.templateId, buildId: build.id },
      resources: { cpuCount, memoryMb: Math.max(memoryMb, LEAST_BUILD_MEMORY_MB), diskSizeMb },
      finalResources: { cpuCount, memoryMb, diskSizeMb },
      stepTimeoutMs: config.buildStepSeconds * 1000,
      readyTimeoutMs: Math.min(READY_TIMEOUT_MS, config.buildStepSeconds * 1000),
    };
  }

  /** Remembers for a while why sandboxes ended by themselves: their builds ask. */
  async #hearEnds(): Promise<void> {
    try {
      for await (const { sandboxId, event } of this.#parts.node.watch({}, { signal: this.#stop.signal })) {
        if (event.case !== 'exit') continue;
        this.#ends.set(sandboxId, event.value.detail);
        setTimeout(() => this.#ends.delete(sandboxId), 60_000).unref();
      }
    } catch (error) {
      if (!this.#stop.signal.aborted)
        this.#parts.log.error('the node is not heard any more', { error: messageOf(error) });
    }
  }
}

function ownName(team: Pick<TeamRow, 'slug'>, text: string): TemplateReference {
  const reference = parseTemplateReference(text);
  if (reference.namespace !== undefined && reference.namespace !== team.slug)
    throw new SandbarError('invalid', `namespace '${reference.namespace}' must match your team '${team.slug}'`);
  return reference;
}

/** The tags of a request, each once: that in the name and those beside it; `default` where there is none. */
function tagsOf(name: TemplateReference | undefined, more: readonly string[]): string[] {
  const all = [...(name?.tag === undefined ? [] : [name.tag]), ...more].map((tag) => {
    const { tag: parsed } = parseTemplateReference(`x:${tag}`);
    return parsed ?? DEFAULT_TAG;
  });
  return all.length === 0 ? [DEFAULT_TAG] : [...new Set(all)];
}
