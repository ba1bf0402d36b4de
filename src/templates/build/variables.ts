/** The search path where nothing has set one; what a process in a sandbox is born with. */
export const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

const REFERENCE = /\\(.)|\$(?:\{([A-Za-z_]\w*)(?:(:?[-+])((?:[^{}]|\{[^{}]*\})*))?\}|([A-Za-z_]\w*))/g;

/**
 * Puts variables in the place of `$NAME`, `${NAME}`, `${NAME:-otherwise}` and `${NAME:+instead}`. A backslash keeps the character after it as it is
 * where that is a dollar sign. Commands are not run. One that is not set is empty.
 */
export function expandVariables(text: string, variables: Readonly<Record<string, string>>): string {
  return text.replaceAll(REFERENCE, (whole, escaped, braced, operator, word, plain) => {
    if (escaped !== undefined) return escaped === '$' ? '$' : whole;
    const name: string = braced ?? plain;
    const value = valueOfVariable(name, variables);
    const isSet = value !== undefined && !(operator?.startsWith(':') && value === '');
    if (operator?.endsWith('-')) return isSet ? value : expandVariables(word, variables);
    if (operator?.endsWith('+')) return isSet ? expandVariables(word, variables) : '';
    return value ?? '';
  });
}

function valueOfVariable(name: string, variables: Readonly<Record<string, string>>): string | undefined {
  if (Object.hasOwn(variables, name)) return variables[name];
  return name === 'PATH' ? DEFAULT_PATH : undefined;
}
