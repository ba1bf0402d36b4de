import type { Compilable, CompiledQuery, DialectAdapter, QueryResult, Transaction } from 'kysely';
import type { Database } from './database.ts';
import type { Schema } from './schema.ts';

export type Executor = Database | Transaction<Schema>;

/** Stands in a statement for a value that each use of it gives. */
class Parameter {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** Puts the place of a value into a statement. */
export type Value<Values> = <Name extends keyof Values & string>(name: Name) => Values[Name];

type Builder<Values, Row> = (db: Executor, value: Value<Values>, names: (keyof Values & string)[]) => Compilable<Row>;

/**
 * A statement whose text is made once for each set of names that it is given values for: to build and compile it takes several times as long as to
 * run it, and these are run on every request.
 */
export function statement<Values extends object, Row>(
  build: Builder<Values, Row>,
): (db: Executor, values: Values) => Promise<QueryResult<Row>> {
  const compiled = new WeakMap<DialectAdapter, Map<string, CompiledQuery<Row>>>();
  const compile = (db: Executor, names: (keyof Values & string)[]) => {
    const { adapter } = db.getExecutor();
    const known = compiled.get(adapter) ?? new Map<string, CompiledQuery<Row>>();
    compiled.set(adapter, known);
    const key = names.join();
    const query = known.get(key) ?? build(db, (name) => new Parameter(name) as never, names).compile();
    known.set(key, query);
    return query;
  };
  return (db, values) => {
    const query = compile(db, Object.keys(values) as (keyof Values & string)[]);
    const given = new Map<string, unknown>(Object.entries(values));
    const parameters = query.parameters.map((value) => (value instanceof Parameter ? given.get(value.name) : value));
    return db.executeQuery({ ...query, parameters });
  };
}
