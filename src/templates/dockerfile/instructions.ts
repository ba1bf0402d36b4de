import { SandbarError } from '../../core/errors.ts';

/** Text that stands in the file behind an instruction: `<<NAME` to a line `NAME`. */
export interface Heredoc {
  name: string;
  body: string;
  /** Variables in it are replaced: its name was written without quotes. */
  expand: boolean;
}

export interface Instruction {
  /** In capitals. */
  keyword: string;
  /** `--name=value` words at its beginning. */
  flags: { name: string; value: string }[];
  /** What follows keyword and flags, lines joined. */
  rest: string;
  heredocs: Heredoc[];
  /** Where it begins, from 1. */
  line: number;
}

const HEREDOC = /<<(-?)(["']?)([A-Za-z_]\w*)\2/g;
const WITH_HEREDOC = new Set(['RUN', 'COPY', 'ADD']);

/** Cuts a Dockerfile into instructions: comments away, continued lines joined, heredocs taken in. */
export function readInstructions(text: string): Instruction[] {
  const lines = text.replace(/^\uFEFF/, '').split(/\r?\n/);
  const escapeCharacter = escapeOf(lines);
  const instructions: Instruction[] = [];
  for (let at = 0; at < lines.length; ) {
    if (isComment(lines[at] ?? '') || lines[at]?.trim() === '') {
      at++;
      continue;
    }
    const line = at + 1;
    const joined = joinLines(lines, at, escapeCharacter);
    at = joined.next;
    const { keyword, flags, rest } = splitHead(joined.text, line);
    const heredocs: Heredoc[] = [];
    if (WITH_HEREDOC.has(keyword)) {
      for (const [, dash, quote, name = ''] of rest.matchAll(HEREDOC)) {
        const end = lines.findIndex((each, index) => index >= at && (dash ? each.replace(/^\t+/, '') : each) === name);
        if (end === -1)
          throw dockerfileError(line, `the text behind '<<${name}' never ends: a line '${name}' is missing`);
        const body = lines.slice(at, end).map((each) => (dash ? each.replace(/^\t+/, '') : each));
        heredocs.push({ name, body: body.map((each) => `${each}\n`).join(''), expand: quote === '' });
        at = end + 1;
      }
    }
    instructions.push({ keyword, flags, rest, heredocs, line });
  }
  return instructions;
}

export function dockerfileError(line: number, message: string): SandbarError {
  return new SandbarError('invalid', `Dockerfile line ${line}: ${message}`);
}

/** The character that continues lines: a backslash, or what a directive at the top says. */
function escapeOf(lines: readonly string[]): string {
  for (const line of lines) {
    const directive = /^\s*#\s*(\w+)\s*=\s*(.*?)\s*$/.exec(line);
    if (directive === null) break;
    if (directive[1]?.toLowerCase() === 'escape') return directive[2] === '`' ? '`' : '\\';
  }
  return '\\';
}

function isComment(line: string): boolean {
  return line.trimStart().startsWith('#');
}

function joinLines(lines: readonly string[], from: number, escapeCharacter: string): { text: string; next: number } {
  const continued = new RegExp(`${escapeCharacter === '`' ? '`' : '\\\\'}[ \\t]*$`);
  let text = '';
  let at = from;
  for (; at < lines.length; at++) {
    const line = lines[at] ?? '';
    // Comments and empty lines may stand between continued ones.
    if (at > from && (isComment(line) || line.trim() === '')) continue;
    if (!continued.test(line)) {
      text += line;
      at++;
      break;
    }
    text += line.replace(continued, '');
  }
  return { text: text.trim(), next: at };
}

function splitHead(text: string, line: number): Pick<Instruction, 'keyword' | 'flags' | 'rest'> {
  const head = /^([A-Za-z]+)(?:\s+([\s\S]*))?$/.exec(text);
  if (head === null) throw dockerfileError(line, `'${text.slice(0, 60)}' is not an instruction`);
  const keyword = (head[1] ?? '').toUpperCase();
  const flags: Instruction['flags'] = [];
  let rest = head[2] ?? '';
  for (;;) {
    const flag = /^--([a-z-]+)(?:=(\S*))?(?:\s+|$)/.exec(rest);
    if (flag === null) break;
    flags.push({ name: flag[1] ?? '', value: flag[2] ?? '' });
    rest = rest.slice(flag[0].length);
  }
  return { keyword, flags, rest };
}
