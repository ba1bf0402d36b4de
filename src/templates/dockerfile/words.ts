/**
 * Words of an instruction: parted by blanks, quotes taken off. What stood in single quotes is not for variables, so its dollar signs get the
 * backslash that keeps them.
 */
export function splitWords(text: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quote = '';
  for (let at = 0; at < text.length; at++) {
    const character = text[at] ?? '';
    const next = text[at + 1];
    if (quote === '' && /\s/.test(character)) {
      if (word !== undefined) words.push(word);
      word = undefined;
      continue;
    }
    word ??= '';
    if (quote === '' && (character === '"' || character === "'")) quote = character;
    else if (character === quote) quote = '';
    else if (quote === "'") word += character === '$' ? '\\$' : character;
    else if (character === '\\' && next !== undefined && (quote === '' || /["$\\]/.test(next))) {
      word += next === '$' ? '\\$' : next;
      at++;
    } else word += character;
  }
  if (quote !== '') throw new Error(`a quote (${quote}) is not closed`);
  if (word !== undefined) words.push(word);
  return words;
}

/** The words of a JSON array of strings; undefined where the text is not one. */
export function jsonWords(text: string): string[] | undefined {
  if (!text.trimStart().startsWith('[')) return undefined;
  try {
    const parsed: unknown = JSON.parse(text);
    return Array.isArray(parsed) && parsed.every((word) => typeof word === 'string') ? parsed : undefined;
  } catch {
    return undefined;
  }
}

/** Words as a shell would have to be given them. */
export function shellText(words: readonly string[]): string {
  return words.map((word) => (/^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(' ');
}
