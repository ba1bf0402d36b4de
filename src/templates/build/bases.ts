import { messageOf, SandbarError } from '../../core/errors.ts';
import type { TeamRow } from '../../db/schema.ts';
import { GLOBAL_NAMESPACE, type ResolvedTemplate, type TemplateStore } from '../../db/template-store.ts';
import type { BuildBase, RegistryCredentials } from '../contract.ts';
import type { BuildContext } from './context.ts';
import { BuildFailure } from './failure.ts';
import type { Saying } from './log.ts';

/** What a stage begins from, as far as its base decides. */
export interface ResolvedBase {
  context: BuildContext;
  startCmd: string | null;
  readyCmd: string | null;
  /** As the log names it. */
  text: string;
}

export interface BaseParts {
  templates: Pick<TemplateStore, 'resolve'>;
  /** A tree of layers out of a registry's image, made fit to be a sandbox's root. */
  fromImage(
    image: string,
    credentials: RegistryCredentials | undefined,
    options: { force: boolean; say: (saying: Saying) => void; signal: AbortSignal },
  ): Promise<{ layers: string[]; env: Record<string, string> }>;
}

/** Images of the cloud service whose place a template of ours takes: no registry is asked for them. */
const OWN_IMAGES: Record<string, string> = {
  'e2bdev/base': 'base',
  'e2bdev/code-interpreter': 'code-interpreter-v1',
};

/** Brings a stage's base about. `base` must not be an earlier stage: that one's context is at hand already. */
export async function resolveBase(
  parts: BaseParts,
  team: Pick<TeamRow, 'id' | 'slug'>,
  base: Exclude<BuildBase, { kind: 'stage' }>,
  options: { force: boolean; say: (saying: Saying) => void; signal: AbortSignal },
): Promise<ResolvedBase> {
  if (base.kind === 'template') return fromTemplate(await find(parts, base.reference, team), base.reference);

  const own = ownTemplate(base.image);
  if (own !== undefined) {
    options.say({ level: 'info', message: `${base.image} is the template '${own}' of this service` });
    return fromTemplate(await find(parts, own, { ...team, slug: GLOBAL_NAMESPACE }), base.image);
  }
  const { layers, env } = await parts.fromImage(base.image, base.credentials, options);
  return {
    context: { layers, env, args: {}, user: 'user', workdir: '/home/user' },
    startCmd: null,
    readyCmd: null,
    text: base.image,
  };
}

/** The template that stands for an image, whatever registry and tag it is named with. */
export function ownTemplate(image: string): string | undefined {
  const path = image
    .replace(/^(docker\.io|index\.docker\.io|registry-1\.docker\.io)\//, '')
    .replace(/(:[^/]*)?(@.*)?$/, '');
  return Object.hasOwn(OWN_IMAGES, path) ? OWN_IMAGES[path] : undefined;
}

async function find(
  { templates }: BaseParts,
  reference: string,
  team: Pick<TeamRow, 'id' | 'slug'>,
): Promise<ResolvedTemplate> {
  try {
    return await templates.resolve(reference, team);
  } catch (error) {
    if (error instanceof SandbarError && (error.kind === 'not_found' || error.kind === 'invalid'))
      throw new BuildFailure(`base ${messageOf(error)}`, 'base', { cause: error });
    throw error;
  }
}

function fromTemplate({ build }: ResolvedTemplate, text: string): ResolvedBase {
  if (build.sourceSandboxId !== null)
    throw new BuildFailure(`'${text}' is a snapshot of a sandbox, which cannot be built upon`, 'base');
  const { layers, env, defaultUser, defaultWorkdir, startCmd, readyCmd } = build;
  return {
    context: { layers, env, args: {}, user: defaultUser, workdir: defaultWorkdir ?? '/home/user' },
    startCmd,
    readyCmd,
    text,
  };
}
