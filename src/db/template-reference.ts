import { SandbarError } from '../core/errors.ts';

/** A parsed `[namespace/]name[:tag]`. The name may also be a template ID. */
export interface TemplateReference {
  namespace: string | undefined;
  name: string;
  /** undefined where none was written, which means `default`. */
  tag: string | undefined;
}

export const DEFAULT_TAG = 'default';

const NAME = /^[a-z0-9_-]+$/;
const TAG = /^[a-z0-9_.-]+$/;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const LONGEST = 128;

/** Trims and lower-cases; refuses (invalid) what is not a reference. */
export function parseTemplateReference(text: string): TemplateReference {
  const reference = text.trim().toLowerCase();
  const refuse = (why: string) => new SandbarError('invalid', `invalid template reference '${text}': ${why}`);
  const colon = reference.indexOf(':');
  const path = colon === -1 ? reference : reference.slice(0, colon);
  const tag = colon === -1 ? undefined : reference.slice(colon + 1);
  const parts = path.split('/');
  const name = parts.at(-1) ?? '';
  const namespace = parts.length > 1 ? parts[0] : undefined;

  if (reference.length > LONGEST) throw refuse(`longer than ${LONGEST} characters`);
  if (parts.length > 2) throw refuse('more than one namespace');
  if (!NAME.test(name)) throw refuse('the name may contain letters, digits, - and _ only');
  if (namespace !== undefined && !NAME.test(namespace))
    throw refuse('the namespace may contain letters, digits, - and _ only');
  if (tag !== undefined && !TAG.test(tag)) throw refuse('the tag may contain letters, digits, -, _ and . only');
  if (tag !== undefined && UUID.test(tag)) throw refuse('the tag may not look like a build ID');
  return { namespace, name, tag };
}

/** The reference without its tag, as error messages name it. */
export function referencePath(reference: TemplateReference): string {
  return reference.namespace === undefined ? reference.name : `${reference.namespace}/${reference.name}`;
}
