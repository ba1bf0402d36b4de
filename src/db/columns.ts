/** A row as the tables hold it: flags as 0 or 1, structures as JSON text. What both dialects store alike. */
export type Stored<Row, Flag extends keyof Row, Json extends keyof Row> = {
  [Column in keyof Row]: Column extends Flag
    ? number | Extract<Row[Column], null>
    : Column extends Json
      ? string
      : Row[Column];
};

export interface ColumnCodec<Row, Flag extends keyof Row, Json extends keyof Row> {
  /** The given fields as columns; fields that are not given stay away. */
  encode<Part extends Partial<Row>>(part: Part): Pick<Stored<Row, Flag, Json>, keyof Part & keyof Row>;
  decode(stored: Stored<Row, Flag, Json>): Row;
}

export function columnCodec<Row extends object>() {
  return <Flag extends keyof Row & string, Json extends keyof Row & string>(
    flags: readonly Flag[],
    json: readonly Json[],
  ): ColumnCodec<Row, Flag, Json> => {
    const convert = (
      row: object,
      flag: (value: unknown) => unknown,
      structure: (value: unknown) => unknown,
    ): object => {
      const converted: Record<string, unknown> = { ...row };
      for (const name of flags)
        if (name in converted && converted[name] !== null) converted[name] = flag(converted[name]);
      for (const name of json) if (name in converted) converted[name] = structure(converted[name]);
      return converted;
    };
    return {
      encode: (part) => convert(part, Number, (value) => JSON.stringify(value)) as never,
      decode: (stored) => convert(stored, Boolean, (value) => JSON.parse(String(value))) as Row,
    };
  };
}
