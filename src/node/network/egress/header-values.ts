/** A place in a header's value that a secret goes into. */
const SECRET_PLACE = /\$\{e2b\.secrets\.([a-zA-Z0-9_-]+)\}/g;

/** A rule names a secret that has no value here. */
export class SecretMissing extends Error {
  constructor(name: string) {
    super(`the secret ${name} is not available`);
  }
}

/** Headers with the values of secrets in their places. */
export function resolveHeaders(
  headers: Record<string, string>,
  secrets: Record<string, string>,
): Record<string, string> {
  const filled = (value: string) =>
    value.replace(SECRET_PLACE, (_, name: string) => {
      const secret = secrets[name.toLowerCase()];
      if (secret === undefined) throw new SecretMissing(name);
      return secret;
    });
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, filled(value)]));
}
