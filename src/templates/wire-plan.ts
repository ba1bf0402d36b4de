import path from 'node:path';
import { SandbarError } from '../core/errors.ts';
import type { BuildAction, BuildBase, BuildPlan, BuildStep, RegistryCredentials } from './contract.ts';

/** A build as clients send it. */
export interface WireBuild {
  fromImage?: string;
  fromTemplate?: string;
  fromImageRegistry?: RegistryCredentials;
  force?: boolean;
  steps?: WireStep[];
  startCmd?: string;
  readyCmd?: string;
}

export interface WireStep {
  type: string;
  args?: string[];
  filesHash?: string;
  force?: boolean;
}

const FILES_HASH = /^[0-9a-f]{64}$/;

/** What a client's build comes to. A step that makes no sense fails the build when its turn comes, under its own number. */
export function planOf(build: WireBuild): BuildPlan {
  const steps = (build.steps ?? []).map(stepOf);
  return {
    stages: [{ base: baseOf(build), steps }],
    ...(build.startCmd && { startCmd: build.startCmd }),
    ...(build.readyCmd && { readyCmd: build.readyCmd }),
    force: build.force ?? false,
  };
}

function baseOf({ fromImage = '', fromTemplate = '', fromImageRegistry }: WireBuild): BuildBase {
  if ((fromImage === '') === (fromTemplate === ''))
    throw new SandbarError('invalid', 'exactly one of fromImage and fromTemplate must be given');
  if (fromTemplate !== '') return { kind: 'template', reference: fromTemplate };
  return { kind: 'image', image: fromImage, ...(fromImageRegistry && { credentials: fromImageRegistry }) };
}

function stepOf({ type, args = [], filesHash, force = false }: WireStep): BuildStep {
  return { action: actionOf(type.toUpperCase(), args, filesHash), text: [type, ...args].join(' ').trim(), force };
}

function actionOf(type: string, args: string[], filesHash: string | undefined): BuildAction {
  const refused = (reason: string): BuildAction => ({ kind: 'refused', reason: `${type}: ${reason}` });
  const [first, second] = args;
  switch (type) {
    case 'RUN':
      if (!first) return refused('the command is missing');
      return { kind: 'run', command: first, ...(second && { user: second }) };
    case 'COPY':
    case 'ADD':
      return copyOf(args, filesHash, refused);
    case 'WORKDIR':
      return first ? { kind: 'workdir', path: first } : refused('the directory is missing');
    case 'USER':
      return first ? { kind: 'user', name: first, sudo: second === 'true' } : refused('the user is missing');
    case 'ENV': {
      if (args.length === 0 || args.length % 2 !== 0) return refused('names and values do not come in pairs');
      const values = args.flatMap((name, at): [string, string][] => (at % 2 === 0 ? [[name, args[at + 1] ?? '']] : []));
      const wrong = values.find(([name]) => !isVariable(name));
      return wrong ? refused(`'${wrong[0]}' cannot be the name of a variable`) : { kind: 'env', values };
    }
    case 'ARG':
      if (first === undefined || !isVariable(first))
        return refused(`'${first ?? ''}' cannot be the name of a variable`);
      return { kind: 'arg', name: first, value: second ?? '' };
    default:
      return { kind: 'refused', reason: `unknown step type '${type}'` };
  }
}

function copyOf(
  [source = '', destination = '', owner = '', mode = '']: string[],
  filesHash: string | undefined,
  refused: (reason: string) => BuildAction,
): BuildAction {
  if (source === '' || destination === '') return refused('source and destination are needed');
  if (filesHash === undefined) return refused('filesHash is missing');
  if (!FILES_HASH.test(filesHash)) return refused(`'${filesHash}' is not a hash of files`);
  const problem = problemOfSource(source);
  if (problem !== undefined) return refused(problem);
  if (mode !== '' && !/^[0-7]{1,4}$/.test(mode)) return refused(`'${mode}' is not a file mode`);
  return { kind: 'copy', sources: [source], destination, owner, mode, origin: { kind: 'upload', filesHash } };
}

/** Why a source cannot be taken from an uploaded archive; undefined when it can. */
export function problemOfSource(source: string): string | undefined {
  if (path.posix.isAbsolute(source))
    return `the source '${source}' is absolute; it is relative to the files of the build`;
  const normal = path.posix.normalize(source);
  if (normal === '..' || normal.startsWith('../')) return `the source '${source}' leads out of the files of the build`;
  return undefined;
}

function isVariable(name: string): boolean {
  return name !== '' && !/[=\0]/.test(name);
}
