import { createHash } from 'node:crypto';
import path from 'node:path';
import type { BuildAction, CopyOrigin } from '../contract.ts';
import { expandVariables } from './variables.ts';

/** Where a build stands after a step: what the next one begins from. */
export interface BuildContext {
  /** Layers of the tree, lowest first. */
  layers: string[];
  env: Record<string, string>;
  /** Variables of the build alone. */
  args: Record<string, string>;
  user: string;
  workdir: string;
}

/** Bumped when the same step on the same tree would leave something else than before. */
const PROCEDURE = 1;

/** Every variable that a step sees; what ENV sets wins over ARG. */
export function variablesOf({ env, args }: BuildContext): Record<string, string> {
  return { ...args, ...env };
}

/** The action with the variables in it replaced, paths made absolute. */
export function settle(action: BuildAction, context: BuildContext): BuildAction {
  const variables = variablesOf(context);
  const expand = (text: string) => expandVariables(text, variables);
  switch (action.kind) {
    case 'run':
    case 'refused':
      return action;
    case 'arg':
      return { ...action, value: expand(action.value) };
    case 'copy':
      return {
        ...action,
        sources: action.sources.map(expand),
        destination: absolute(expand(action.destination), context.workdir),
        owner: expand(action.owner) || context.user,
        origin: settleOrigin(action.origin, expand),
      };
    case 'workdir':
      return { ...action, path: absolute(expand(action.path), context.workdir) };
    case 'user':
      return { ...action, name: expand(action.name) };
    case 'env':
      // All values of one instruction see the variables as they were before it.
      return { ...action, values: action.values.map(([name, value]) => [name, expand(value)]) };
  }
}

function settleOrigin(origin: CopyOrigin, expand: (text: string) => string): CopyOrigin {
  if (origin.kind !== 'inline') return origin;
  const files = origin.files.map((file) => (file.expand ? { ...file, content: expand(file.content) } : file));
  return { ...origin, files };
}

/** What a settled action changes of the context beside the tree. */
export function withEffect(context: BuildContext, action: BuildAction): BuildContext {
  switch (action.kind) {
    case 'env':
      return { ...context, env: { ...context.env, ...Object.fromEntries(action.values) } };
    case 'arg':
      return { ...context, args: { ...context.args, [action.name]: action.value } };
    case 'workdir':
      return { ...context, workdir: action.path };
    case 'user':
      // A group is written behind the user; processes are in the user's own groups anyway.
      return { ...context, user: action.name.split(':')[0] ?? action.name };
    default:
      return context;
  }
}

/**
 * The hash of everything that the outcome of a settled action depends on. It names the layers below by what they are, not by how they came about: when
 * one was made anew, nothing that stood on the old one is taken for it. Teams do not share, since an archive is known by a hash that its maker chose.
 */
export function keyOf(teamId: string, context: BuildContext, action: BuildAction, origin: unknown = null): string {
  const { layers, env, args, user, workdir } = context;
  const whole = { PROCEDURE, teamId, layers, env, args, user, workdir, action, origin };
  return createHash('sha256').update(JSON.stringify(whole)).digest('hex');
}

/** A trailing slash stays: it says that the path is a directory. */
function absolute(text: string, workdir: string): string {
  const joined = path.posix.resolve(workdir, text);
  const directory = /(^|\/)\.{0,2}$/.test(text) || text.endsWith('/');
  return directory && joined !== '/' ? `${joined}/` : joined;
}
