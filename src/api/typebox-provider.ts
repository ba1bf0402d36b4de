import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyTypeProvider,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import { type Static, type TSchema, Type } from 'typebox';

/** Lets Fastify give handlers the types that follow from a route's schemas. */
export interface TypeBoxTypeProvider extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown;
  serializer: this['schema'] extends TSchema ? Static<this['schema']> : unknown;
}

/** The server as the route files see it. */
export type Api = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression<RawServerDefault>,
  RawReplyDefaultExpression<RawServerDefault>,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

// Building blocks of schemas that TypeBox has not, or has in a form that OpenAPI readers dislike.

export const NullableString = Type.Unsafe<string | null>({ type: ['string', 'null'] });

export const DateTime = Type.String({ format: 'date-time' });

export const NullableDateTime = Type.Unsafe<string | null>({ type: ['string', 'null'], format: 'date-time' });

/** A map of strings. TypeBox's own record checks keys with a pattern that a line break escapes. */
export const StringMap = Type.Unsafe<Record<string, string>>({
  type: 'object',
  additionalProperties: { type: 'string' },
});

export const INT32_MAX = 2_147_483_647;

/** The schema of an answer without a body. */
export function Nothing(description: string) {
  return Type.Unsafe<undefined>({ type: 'null', description });
}

/** One of some words. */
export function OneOf<const Word extends string>(words: readonly Word[], options: object = {}) {
  return Type.Unsafe<Word>({ type: 'string', enum: words, ...options });
}
