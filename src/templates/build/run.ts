import { messageOf, SandbarError } from '../../core/errors.ts';
import type { BuildCacheStore } from '../../db/build-cache-store.ts';
import type { TeamRow } from '../../db/schema.ts';
import type { BuildContent } from '../../db/template-store.ts';
import type { BuildPlan, BuildStage, BuildStep } from '../contract.ts';
import { type BaseParts, ownTemplate, type ResolvedBase, resolveBase } from './bases.ts';
import { type BuildContext, keyOf, settle, withEffect } from './context.ts';
import { BuildFailure } from './failure.ts';
import { type FinishParts, finish } from './finish.ts';
import type { BuildLog, BuildLogLevel, Saying } from './log.ts';
import { type PerformParts, perform } from './perform.ts';
import type { SharedWork } from './shared-work.ts';

export interface RunParts extends BaseParts, PerformParts, FinishParts {
  team: Pick<TeamRow, 'id' | 'slug'>;
  cache: BuildCacheStore;
  shared: SharedWork<string[], Saying>;
  log: BuildLog;
}

/** What a build comes to, as its row keeps it. */
export type BuildOutcome = Pick<
  BuildContent,
  'layers' | 'env' | 'defaultUser' | 'defaultWorkdir' | 'startCmd' | 'readyCmd' | 'snapshotId'
>;

/** One build from its base to the snapshot of its running start command. */
export class BuildRun {
  readonly #parts: RunParts;
  readonly #plan: BuildPlan;
  readonly #signal: AbortSignal;
  /** Contexts after each stage that was needed. */
  readonly #stages = new Map<number, ResolvedBase>();

  constructor(parts: RunParts, plan: BuildPlan, signal: AbortSignal) {
    this.#parts = parts;
    this.#plan = plan;
    this.#signal = signal;
  }

  /** Fails with a BuildFailure where the plan is to blame, with anything else where this service is. */
  async run(): Promise<BuildOutcome> {
    const began = Date.now();
    const { log } = this.#parts;
    const { context, ...inherited } = await this.#stage(this.#plan.stages.length - 1);
    // A start command of one's own comes with a ready command of one's own, or with the default.
    const startCmd = this.#plan.startCmd ?? inherited.startCmd;
    const readyCmd = this.#plan.readyCmd ?? (this.#plan.startCmd === undefined ? inherited.readyCmd : null);
    const snapshotId = await finish(this.#parts, context, { startCmd, readyCmd }, this.#signal);
    log.add('info', `Build finished, took ${Math.round((Date.now() - began) / 100) / 10}s`);
    return {
      layers: context.layers,
      env: context.env,
      defaultUser: context.user,
      defaultWorkdir: context.workdir,
      startCmd,
      readyCmd,
      snapshotId,
    };
  }

  /** The context after all steps of a stage; each is gone through once, and only if somebody needs it. */
  async #stage(index: number): Promise<ResolvedBase> {
    const known = this.#stages.get(index);
    if (known !== undefined) return known;
    const stage = this.#plan.stages[index];
    if (stage === undefined) throw new BuildFailure(`there is no stage ${index}`);
    const base = await this.#base(stage);
    let { context } = base;
    let forced = this.#plan.force;
    const label = this.#plan.stages.length === 1 ? 'builder' : `stage ${index + 1}`;
    for (const [at, step] of stage.steps.entries()) {
      forced ||= step.force;
      context = await this.#step(context, step, { number: at + 1, of: stage.steps.length, label, forced });
    }
    const done = { ...base, context };
    this.#stages.set(index, done);
    return done;
  }

  async #base(stage: BuildStage): Promise<ResolvedBase> {
    const { base } = stage;
    if (base.kind === 'stage') {
      const { context, ...rest } = await this.#stage(base.stage);
      return { ...rest, context: { ...context, args: {} } };
    }
    const { log } = this.#parts;
    const what = base.kind === 'image' ? base.image : base.reference;
    log.add('info', `[base] FROM ${what}`, 'base');
    try {
      const resolved = await resolveBase(this.#parts, this.#parts.team, base, {
        force: this.#plan.force,
        say: ({ level, message }) => log.addOutput(level, `[base] ${message}`, 'base'),
        signal: this.#signal,
      });
      return { ...resolved, context: { ...resolved.context, layers: await this.#fit(resolved.context.layers) } };
    } catch (error) {
      throw this.#blame(error, 'base');
    }
  }

  async #step(
    context: BuildContext,
    step: BuildStep,
    place: { number: number; of: number; label: string; forced: boolean },
  ): Promise<BuildContext> {
    this.#signal.throwIfAborted();
    const name = String(place.number);
    const prefix = `[${place.label} ${place.number}/${place.of}]`;
    const { log } = this.#parts;
    try {
      const action = settle(step.action, context);
      if (action.kind === 'refused') throw new BuildFailure(action.reason);
      const after = withEffect(context, action);
      if (action.kind === 'env' || action.kind === 'arg') {
        // Nothing is run for it, so it is as good as done before.
        log.add('info', `${place.forced ? '' : 'CACHED '}${prefix} ${step.text}`, name);
        return after;
      }
      const originLayers = action.kind === 'copy' ? await this.#originOf(action.origin) : undefined;
      const key = keyOf(this.#parts.team.id, context, action, originLayers);
      const shown = `${prefix} ${step.text} [${key.slice(0, 12)}]`;
      const known = place.forced ? undefined : await this.#known(key);
      if (known !== undefined) {
        log.add('info', `CACHED ${shown}`, name);
        return { ...after, layers: await this.#fit([...context.layers, ...known]) };
      }
      log.add('info', shown, name);
      const added = await this.#parts.shared.do(
        place.forced ? `${key} ${this.#parts.owner.buildId}` : key,
        async (say, signal) => {
          const layers = await perform(this.#parts, context, action, originLayers, say, signal);
          await this.#parts.cache.put(key, layers, Date.now());
          return layers;
        },
        ({ level, message }) => log.addOutput(level, `${prefix} ${message}`, name),
        this.#signal,
      );
      return { ...after, layers: await this.#fit([...context.layers, ...added]) };
    } catch (error) {
      throw this.#blame(error, name);
    }
  }

  /** What earlier work left, where it is still on this machine. */
  async #known(key: string): Promise<string[] | undefined> {
    const layers = await this.#parts.cache.find(key, Date.now());
    if (layers?.every((layer) => this.#parts.machine.layers.has(layer))) return layers;
    return undefined;
  }

  async #originOf(origin: { kind: string; stage?: number; image?: string }): Promise<string[] | undefined> {
    if (origin.kind === 'stage' && origin.stage !== undefined) return (await this.#stage(origin.stage)).context.layers;
    if (origin.kind !== 'image' || origin.image === undefined) return undefined;
    if (ownTemplate(origin.image) === undefined) {
      const { layers } = await this.#parts.fromImage(origin.image, undefined, {
        force: this.#plan.force,
        say: ({ level, message }) => this.#parts.log.addOutput(level, `[base] ${message}`, 'base'),
        signal: this.#signal,
      });
      return layers;
    }
    const base = { kind: 'image' as const, image: origin.image };
    const say = () => undefined;
    return (await resolveBase(this.#parts, this.#parts.team, base, { force: false, say, signal: this.#signal })).context
      .layers;
  }

  /** Room is left for one more layer and for a sandbox's own. */
  #fit(layers: string[]): Promise<string[]> {
    return this.#parts.machine.layers.fit(layers, 2);
  }

  /** The same failure with the step that it happened in, and said in the log. */
  #blame(error: unknown, step: string): unknown {
    this.#signal.throwIfAborted();
    const foreseen = error instanceof BuildFailure || (error instanceof SandbarError && error.kind === 'no_space');
    if (!foreseen) return error;
    const failure = new BuildFailure(messageOf(error), error instanceof BuildFailure ? (error.step ?? step) : step);
    this.#say('error', failure.message, failure.step ?? null);
    return failure;
  }

  #say(level: BuildLogLevel, message: string, step: string | null): void {
    this.#parts.log.add(level, message, step);
  }
}
