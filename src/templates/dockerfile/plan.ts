import { messageOf } from '../../core/errors.ts';
import { expandVariables } from '../build/variables.ts';
import type { BuildAction, BuildBase, BuildPlan, BuildStage, BuildStep, CopyOrigin } from '../contract.ts';
import { problemOfSource } from '../wire-plan.ts';
import { dockerfileError, type Heredoc, type Instruction, readInstructions } from './instructions.ts';
import { jsonWords, shellText, splitWords } from './words.ts';

export interface DockerfileOptions {
  /** Uploaded archive that COPY takes from; without it only COPY --from and COPY of text in the file work. */
  filesHash?: string;
}

/** Instructions that say nothing about the files or the processes of a sandbox. */
const WITHOUT_EFFECT = new Set(['EXPOSE', 'VOLUME', 'LABEL', 'MAINTAINER', 'STOPSIGNAL', 'HEALTHCHECK']);
const ARCHIVE = /\.(tar|tgz|tar\.(gz|bz2|xz|zst)|tbz2|txz)$/i;

/** Reads a Dockerfile into steps. What cannot be done is an `invalid` error that names its line. */
export function planOfDockerfile(text: string, options: DockerfileOptions = {}): BuildPlan {
  return new Reader(options).read(readInstructions(text));
}

interface OpenStage extends BuildStage {
  name: string | undefined;
  /** Words of the shell that RUN takes; undefined: the login shell of the service. */
  shell: string[] | undefined;
  hasUser: boolean;
  hasWorkdir: boolean;
  entrypoint: Command | undefined;
  command: Command | undefined;
}

/** Words of a program, or what a shell reads. */
type Command = readonly string[] | string;

class Reader {
  readonly #options: DockerfileOptions;
  readonly #globals: Record<string, string> = {};
  readonly #stages: OpenStage[] = [];

  constructor(options: DockerfileOptions) {
    this.#options = options;
  }

  read(instructions: Instruction[]): BuildPlan {
    for (const instruction of instructions) {
      try {
        this.#take(instruction);
      } catch (error) {
        if (/^Dockerfile line/.test(messageOf(error))) throw error;
        throw dockerfileError(instruction.line, messageOf(error));
      }
    }
    const last = this.#stages.at(-1);
    if (last === undefined) throw dockerfileError(1, 'a FROM instruction is missing');
    if (!last.hasUser) last.steps.push(step('USER user', { kind: 'user', name: 'user', sudo: false }));
    if (!last.hasWorkdir) last.steps.push(step('WORKDIR /home/user', { kind: 'workdir', path: '/home/user' }));
    const startCmd = startCommandOf(last);
    return {
      stages: this.#stages.map(({ base, steps }) => ({ base, steps })),
      ...(startCmd !== undefined && { startCmd }),
      force: false,
    };
  }

  #take(instruction: Instruction): undefined {
    const { keyword } = instruction;
    if (keyword === 'FROM') {
      this.#from(instruction);
      return;
    }
    if (keyword === 'ARG') {
      this.#arg(instruction);
      return;
    }
    const stage = this.#stages.at(-1);
    if (stage === undefined) throw new Error(`${keyword} stands before FROM`);
    if (WITHOUT_EFFECT.has(keyword)) return;
    const add = (action: BuildAction) => void stage.steps.push(step(textOf(instruction), action));
    switch (keyword) {
      case 'RUN':
        return add(runOf(instruction, stage.shell));
      case 'COPY':
      case 'ADD':
        for (const action of this.#copy(instruction)) add(action);
        return;
      case 'ENV':
        return add({ kind: 'env', values: pairsOf(instruction.rest) });
      case 'WORKDIR':
        stage.hasWorkdir = true;
        return add({ kind: 'workdir', path: onlyWord(instruction) });
      case 'USER':
        stage.hasUser = true;
        return add({ kind: 'user', name: onlyWord(instruction), sudo: false });
      case 'SHELL': {
        const words = jsonWords(instruction.rest);
        if (words === undefined || words.length === 0) throw new Error('SHELL needs its words as a JSON array');
        stage.shell = words;
        return;
      }
      case 'ENTRYPOINT':
        stage.entrypoint = commandOf(instruction.rest);
        return;
      case 'CMD':
        stage.command = commandOf(instruction.rest);
        return;
      default:
        throw new Error(`${keyword} is not supported`);
    }
  }

  #from({ flags, rest, line }: Instruction): void {
    for (const { name, value } of flags) {
      const platform = expandVariables(value, this.#globals);
      const own = process.arch === 'arm64' ? 'linux/arm64' : 'linux/amd64';
      if (name !== 'platform') throw new Error(`FROM --${name} is not supported`);
      if (platform !== '' && platform !== own) throw new Error(`images for ${platform} do not run here (${own})`);
    }
    const words = splitWords(rest).map((word) => expandVariables(word, this.#globals));
    const [image, as, name] = words;
    if (!image || words.length === 2 || words.length > 3 || (as !== undefined && as.toUpperCase() !== 'AS'))
      throw new Error('FROM takes the name of an image, and after AS that of the stage');
    if (image === 'scratch') throw new Error('FROM scratch is not supported: a sandbox needs a system to run in');
    const earlier = this.#stageNamed(image);
    const stage: OpenStage = {
      base: baseOf(image, earlier),
      steps: [],
      name: name?.toLowerCase(),
      shell: undefined,
      hasUser: false,
      hasWorkdir: false,
      entrypoint: undefined,
      command: undefined,
    };
    if (name !== undefined && this.#stages.some((other) => other.name === stage.name))
      throw dockerfileError(line, `there are two stages '${name}'`);
    const parent = earlier === undefined ? undefined : this.#stages[earlier];
    if (parent === undefined) {
      // As Docker begins; what the image itself says about user and directory is left aside, as clients do it.
      stage.steps.push(
        step('USER root', { kind: 'user', name: 'root', sudo: false }),
        step('WORKDIR /', { kind: 'workdir', path: '/' }),
      );
    } else {
      const { shell, hasUser, hasWorkdir, entrypoint, command } = parent;
      Object.assign(stage, { shell, hasUser, hasWorkdir, entrypoint, command });
    }
    this.#stages.push(stage);
  }

  #arg({ rest }: Instruction): void {
    const stage = this.#stages.at(-1);
    for (const word of splitWords(rest)) {
      const equals = word.indexOf('=');
      const name = equals === -1 ? word : word.slice(0, equals);
      if (!/^[A-Za-z_]\w*$/.test(name)) throw new Error(`'${name}' cannot be the name of a variable`);
      const value = equals === -1 ? undefined : word.slice(equals + 1);
      if (stage === undefined) this.#globals[name] = expandVariables(value ?? '', this.#globals);
      else {
        const fallback = this.#globals[name] ?? '';
        stage.steps.push(step(`ARG ${word}`, { kind: 'arg', name, value: value ?? fallback.replaceAll('$', '\\$') }));
      }
    }
  }

  #copy(instruction: Instruction): BuildAction[] {
    const { keyword, flags, rest, heredocs } = instruction;
    let owner = '';
    let mode = '';
    let from: string | undefined;
    for (const { name, value } of flags) {
      if (name === 'chown') owner = value;
      else if (name === 'chmod') mode = modeOf(value);
      else if (name === 'from' && keyword === 'COPY') from = value;
      // Only says how the layer is stored.
      else if (name !== 'link') throw new Error(`${keyword} --${name} is not supported`);
    }
    const words = jsonWords(rest) ?? splitWords(rest);
    const destination = words.at(-1);
    const sources = words.slice(0, -1);
    if (destination === undefined || sources.length === 0)
      throw new Error(`${keyword} needs a source and a destination`);
    const several = sources.length > 1 && !destination.endsWith('/');
    if (several)
      throw new Error(`${keyword} of several sources needs a directory, with a slash at its end, to copy to`);

    const inline = sources.filter((source) => source.startsWith('<<'));
    const links = sources.filter((source) => keyword === 'ADD' && /^https?:\/\//.test(source));
    const plain = sources.filter((source) => !inline.includes(source) && !links.includes(source));
    const copy = (chosen: string[], origin: CopyOrigin): BuildAction => ({
      kind: 'copy',
      sources: chosen,
      destination,
      // Docker's COPY leaves root's files, whoever the user is.
      owner: owner || 'root',
      mode,
      origin,
    });
    return [
      ...(plain.length === 0 ? [] : [copy(plain, this.#originOf(plain, from, keyword))]),
      ...inline.map((source) => copyOfText(source, heredocs, destination, copy)),
      ...links.map((link) => download(link, destination, owner || 'root', mode)),
    ];
  }

  #originOf(sources: string[], from: string | undefined, keyword: string): CopyOrigin {
    if (from !== undefined) {
      const stage = /^\d+$/.test(from) ? Number(from) : this.#stageNamed(from);
      if (stage === undefined) return { kind: 'image', image: from };
      if (stage >= this.#stages.length - 1) throw new Error(`there is no stage '${from}' before this one`);
      return { kind: 'stage', stage };
    }
    for (const source of sources) {
      if (/^(git@|.*\.git(#.*)?$)/.test(source) && keyword === 'ADD')
        throw new Error('ADD of a repository is not supported');
      if (keyword === 'ADD' && ARCHIVE.test(source))
        throw new Error('ADD does not unpack archives here: use COPY, and tar in a RUN');
      const problem = problemOfSource(source.replace(/^\//, ''));
      if (problem !== undefined) throw new Error(problem);
    }
    if (this.#options.filesHash === undefined)
      throw new Error(
        `${keyword} takes files of the build's directory, which do not come with the text of a Dockerfile: build with the SDK or the CLI, or upload them first and name their filesHash`,
      );
    return { kind: 'upload', filesHash: this.#options.filesHash };
  }

  #stageNamed(name: string): number | undefined {
    const at = this.#stages.findIndex((stage) => stage.name === name.toLowerCase());
    return at === -1 ? undefined : at;
  }
}

function step(text: string, action: BuildAction): BuildStep {
  return { text, action, force: false };
}

function textOf({ keyword, flags, rest }: Instruction): string {
  const shown = flags.map(({ name, value }) => `--${name}=${value}`);
  return [keyword, ...shown, rest].join(' ').slice(0, 500);
}

function baseOf(image: string, earlier: number | undefined): BuildBase {
  return earlier === undefined ? { kind: 'image', image } : { kind: 'stage', stage: earlier };
}

function runOf({ flags, rest, heredocs, keyword }: Instruction, shell: string[] | undefined): BuildAction {
  const unknown = flags.find(({ name, value }) => !(name === 'network' && value === 'default'));
  if (unknown !== undefined) throw new Error(`${keyword} --${unknown.name} is not supported`);
  if (rest.trim() === '') throw new Error('RUN needs a command');
  const words = jsonWords(rest);
  if (words !== undefined) {
    if (words.length === 0) throw new Error('RUN needs a command');
    return { kind: 'run', command: shellText(words), words };
  }
  const command = heredocs.length === 0 ? rest : scriptOf(rest, heredocs);
  return { kind: 'run', command, ...(shell !== undefined && { words: [...shell, command] }) };
}

/** A lone `<<NAME` is the script itself; behind a command it is what a shell makes of it. */
function scriptOf(rest: string, heredocs: Heredoc[]): string {
  const [only] = heredocs;
  const alone = heredocs.length === 1 && /^<<-?["']?\w+["']?$/.test(rest.trim());
  if (!alone || only === undefined) return `${rest}\n${heredocs.map(({ name, body }) => `${body}${name}\n`).join('')}`;
  if (!only.body.startsWith('#!')) return only.body;
  return `script=$(mktemp) && cat > "$script" <<'SANDBAR_SCRIPT'\n${only.body}SANDBAR_SCRIPT\nchmod +x "$script" && "$script"; status=$?; rm -f "$script"; exit $status`;
}

function copyOfText(
  source: string,
  heredocs: Heredoc[],
  destination: string,
  copy: (sources: string[], origin: CopyOrigin) => BuildAction,
): BuildAction {
  const name = /^<<-?["']?(\w+)/.exec(source)?.[1] ?? '';
  const heredoc = heredocs.find((each) => each.name === name);
  if (heredoc === undefined) throw new Error(`the text of '${source}' is missing`);
  // It is called after its mark where the destination is a directory.
  if (destination === '') throw new Error('COPY needs a destination');
  return copy([name], { kind: 'inline', files: [{ name, content: heredoc.body, expand: heredoc.expand }] });
}

function download(link: string, destination: string, owner: string, mode: string): BuildAction {
  const name = new URL(link).pathname.split('/').at(-1) ?? '';
  if (destination.endsWith('/') && name === '') throw new Error(`'${link}' names no file, so the destination must`);
  const target = destination.endsWith('/') ? `${destination}${name}` : destination;
  const [quotedLink, quoted, who] = [link, target, owner].map((word) => `'${word.replaceAll("'", "'\\''")}'`);
  // As Docker has it, a file that was fetched is for root alone where nothing else is said.
  const command = [
    `mkdir -p "$(dirname ${quoted})"`,
    `if command -v curl >/dev/null; then curl -fsSL -o ${quoted} ${quotedLink}; else wget -q -O ${quoted} ${quotedLink}; fi`,
    `chown ${who} ${quoted}`,
    `chmod ${mode || '0600'} ${quoted}`,
  ].join(' && ');
  return { kind: 'run', command, user: 'root' };
}

function modeOf(value: string): string {
  if (!/^[0-7]{1,4}$/.test(value)) throw new Error(`--chmod=${value} is not supported: give the mode in octal digits`);
  return value;
}

/** `NAME=value …`, or `NAME value` with all of the rest as the value. */
function pairsOf(rest: string): [string, string][] {
  const words = splitWords(rest);
  const [first] = words;
  if (first === undefined) throw new Error('ENV needs a name and a value');
  if (!first.includes('=')) {
    const match = /^(\S+)\s+([\s\S]+)$/.exec(rest.trim());
    if (match === null) throw new Error(`ENV ${first} needs a value`);
    return [[first, match[2] ?? '']];
  }
  return words.map((word) => {
    const equals = word.indexOf('=');
    if (equals < 1) throw new Error(`ENV: '${word}' is not of the form NAME=value`);
    return [word.slice(0, equals), word.slice(equals + 1)];
  });
}

function onlyWord({ keyword, rest }: Instruction): string {
  const words = splitWords(rest);
  if (words.length !== 1 || !words[0]) throw new Error(`${keyword} takes one word`);
  return words[0];
}

function commandOf(rest: string): Command {
  const words = jsonWords(rest);
  if (words === undefined && rest.trim() === '') throw new Error('a command is missing');
  return words ?? rest;
}

/** The words of CMD are arguments of an entrypoint that is in words; a shell's entrypoint does not see them. */
function startCommandOf({ entrypoint, command }: OpenStage): string | undefined {
  const text = (each: Command) => (typeof each === 'string' ? each : shellText(each));
  if (entrypoint === undefined) return command === undefined || command.length === 0 ? undefined : text(command);
  if (typeof entrypoint === 'string' || command === undefined) return text(entrypoint);
  return `${text(entrypoint)} ${text(command)}`;
}
