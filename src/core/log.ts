/** Values a log line may carry beside its message. */
export type LogFields = Record<string, string | number | boolean | null | undefined>;

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

const order: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 };

/** The service's own log: one line a record on standard error, JSON when it is not a terminal. */
export class Log {
  readonly #bound: LogFields;
  readonly #least: LogLevel;

  constructor(least: LogLevel = 'info', bound: LogFields = {}) {
    this.#least = least;
    this.#bound = bound;
  }

  /** A log whose every line also carries these fields. */
  with(fields: LogFields): Log {
    return new Log(this.#least, { ...this.#bound, ...fields });
  }

  debug(message: string, fields?: LogFields): void {
    this.#write('debug', message, fields);
  }

  info(message: string, fields?: LogFields): void {
    this.#write('info', message, fields);
  }

  warn(message: string, fields?: LogFields): void {
    this.#write('warn', message, fields);
  }

  error(message: string, fields?: LogFields): void {
    this.#write('error', message, fields);
  }

  #write(level: LogLevel, message: string, fields: LogFields = {}): void {
    if (order[level] < order[this.#least]) return;
    const record = { ...this.#bound, ...fields };
    if (process.stderr.isTTY) {
      const rest = Object.entries(record).map(([key, value]) => ` ${key}=${value}`);
      process.stderr.write(`${new Date().toISOString().slice(11, 23)} ${level.padEnd(5)} ${message}${rest.join('')}\n`);
      return;
    }
    process.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), level, message, ...record })}\n`);
  }
}
