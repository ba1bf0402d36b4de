import type { Readable } from 'node:stream';
import { messageOf, SandbarError } from '../../core/errors.ts';
import { randomHex } from '../../core/ids.ts';
import type { CopyRequest } from '../../node/disk/root-edits.ts';
import type { BuildAction } from '../contract.ts';
import type { BuildContext } from './context.ts';
import { BuildFailure } from './failure.ts';
import { inlineArchive } from './inline-archive.ts';
import type { Saying } from './log.ts';
import { type BuildResources, BuildSandbox, type BuildSandboxParts, endOf } from './sandbox.ts';
import type { Slots } from './slots.ts';

/** Settled actions that leave something in the tree. */
export type TreeAction = Extract<BuildAction, { kind: 'run' | 'copy' | 'workdir' | 'user' }>;

export interface PerformParts extends BuildSandboxParts {
  slots: Slots;
  /** An uploaded archive, uncompressed; undefined when there is none of that hash. */
  openUpload(filesHash: string): Promise<Readable | undefined>;
  owner: { templateId: string; buildId: string };
  resources: BuildResources;
  stepTimeoutMs: number;
}

const MIB = 1024 * 1024;

/** Does what an action says on the tree of the context. Resolves to the layers that it adds: one, or none where nothing changed. */
export async function perform(
  parts: PerformParts,
  context: BuildContext,
  action: TreeAction,
  /** Layers of the tree that a COPY takes from, where it is a tree. */
  originLayers: string[] | undefined,
  say: (saying: Saying) => void,
  signal: AbortSignal,
): Promise<string[]> {
  const layer = newLayerName();
  const { layers, edits } = parts.machine;
  switch (action.kind) {
    case 'run':
      return parts.slots.take(() => run(parts, context, action, layer, say, signal), signal);
    case 'copy': {
      await layers.derive(layer, context.layers, async (root) => {
        for (const source of action.sources) await copy(parts, root, source, action, originLayers, signal);
        return true;
      });
      return [layer];
    }
    case 'workdir': {
      const changed = await explained(`cannot make the directory '${action.path}'`, () =>
        layers.derive(layer, context.layers, (root) => edits.makeDirectory(root, action.path, context.user, signal)),
      );
      return changed ? [layer] : [];
    }
    case 'user': {
      const [name = '', group] = action.name.split(':');
      if (group !== undefined)
        say({ level: 'warn', message: `the group '${group}' is not used: a user's own groups apply` });
      const changed = await explained(`cannot make the user '${name}'`, () =>
        layers.derive(layer, context.layers, (root) => edits.ensureUser(root, name, { sudo: action.sudo }, signal)),
      );
      return changed ? [layer] : [];
    }
  }
}

export function newLayerName(): string {
  return `s-${randomHex(10)}`;
}

async function run(
  parts: PerformParts,
  context: BuildContext,
  action: Extract<BuildAction, { kind: 'run' }>,
  layer: string,
  say: (saying: Saying) => void,
  signal: AbortSignal,
): Promise<string[]> {
  const shown = action.command.length > 300 ? `${action.command.slice(0, 300)}…` : action.command;
  const failed = (why: string, cause?: unknown) =>
    new BuildFailure(`failed to run command '${shown}': command failed: ${why}`, undefined, { cause });
  const sandbox = await BuildSandbox.boot(parts, context.layers, parts.resources, parts.owner, signal);
  try {
    const end = await sandbox
      .run(
        {
          command: action.words ?? action.command,
          user: action.user ?? context.user,
          workdir: context.workdir,
          env: { ...context.args, ...context.env },
          timeoutMs: parts.stepTimeoutMs,
          onLine: (stream, line) =>
            say({ level: stream === 'stdout' ? 'info' : 'warn', message: `[${stream}]: ${line}` }),
        },
        signal,
      )
      .catch((error: unknown) => {
        signal.throwIfAborted();
        throw failed(messageOf(error), error);
      });
    const why = endOf(end, parts.stepTimeoutMs);
    if (why !== undefined) throw failed(why);
    await sandbox.exportLayer(layer, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      throw new BuildFailure(`the changes of the step could not be kept: ${messageOf(error)}`, undefined, {
        cause: error,
      });
    });
    return [layer];
  } finally {
    await sandbox.destroy();
  }
}

async function copy(
  parts: PerformParts,
  root: string,
  source: string,
  action: Extract<BuildAction, { kind: 'copy' }>,
  originLayers: string[] | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { layers, edits } = parts.machine;
  const several = action.sources.length > 1 && !action.destination.endsWith('/');
  const request: CopyRequest = {
    source,
    destination: several ? `${action.destination}/` : action.destination,
    owner: action.owner,
    mode: action.mode,
    limitBytes: parts.resources.diskSizeMb * MIB,
  };
  await explained(`failed to copy '${source}' to '${action.destination}'`, async () => {
    if (originLayers !== undefined)
      return layers.view(originLayers, (from) => edits.copyBetween(from, root, request, signal));
    if (action.origin.kind === 'inline') return edits.copy(root, inlineArchive(action.origin.files), request, signal);
    const filesHash = action.origin.kind === 'upload' ? action.origin.filesHash : '';
    const archive = await parts.openUpload(filesHash);
    if (archive === undefined) throw new SandbarError('invalid', 'its files were not uploaded');
    return edits.copy(root, archive, request, signal);
  });
}

/** A failure that is the maker's business, with what was tried in front. */
async function explained<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof SandbarError && error.kind === 'invalid')
      throw new BuildFailure(`${what}: ${error.message}`, undefined, { cause: error });
    if (error instanceof Error && 'code' in error && String(error.code).startsWith('Z_'))
      throw new BuildFailure(`${what}: the archive is not gzip, or it is damaged (${error.message})`);
    throw error;
  }
}
