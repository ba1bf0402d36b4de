import { readFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, it } from 'vitest';
import { messageOf } from '../../src/core/errors.ts';
import { runPython } from '../support/python.ts';
import { describeOnRuntimes } from '../support/service.ts';

const SCRIPT_TIMEOUT_MS = 240_000;

interface Result {
  case: string;
  /** A traceback; null when all went well. */
  error: string | null;
}

/** A script of cases, which prints a result for each. */
class Script {
  readonly name: string;
  readonly cases: string[];
  readonly #file: string;
  readonly #results: Map<string, PromiseWithResolvers<Result>>;

  constructor(name: string) {
    this.name = name;
    this.#file = path.join(import.meta.dirname, name);
    this.cases = [...readFileSync(this.#file, 'utf8').matchAll(/^@case\("(.*)"\)$/gm)].map(
      (match) => match[1] as string,
    );
    this.#results = new Map(this.cases.map((one) => [one, Promise.withResolvers<Result>()]));
    for (const { promise } of this.#results.values()) promise.catch(() => undefined);
  }

  start(env: Record<string, string>): void {
    const onLine = (line: string) => {
      if (!line.startsWith('{"case"')) return;
      const result = JSON.parse(line) as Result;
      this.#results.get(result.case)?.resolve(result);
    };
    runPython(this.#file, { env, timeoutMs: SCRIPT_TIMEOUT_MS, onLine }).then(
      () => this.#finish('the script ended without this case'),
      (error: unknown) => this.#finish(messageOf(error)),
    );
  }

  async outcomeOf(name: string): Promise<void> {
    const result = await this.#results.get(name)?.promise;
    if (result?.error !== null) throw new Error(result?.error);
  }

  #finish(why: string): void {
    for (const result of this.#results.values()) result.reject(new Error(why));
  }
}

/** The newest official Python package against the service: every case of every script is a test. The scripts run side by side. */
describeOnRuntimes('the Python SDK', (service) => {
  const names = ['files.py', 'commands.py', 'git.py', 'sandbox.py', 'async_sdk.py'];
  const scripts = names.map((name) => new Script(name));
  beforeAll(() => {
    for (const script of scripts) script.start(service().env);
  });
  describe.each(scripts)('$name', (script) => {
    it.each(script.cases)('%s', { timeout: SCRIPT_TIMEOUT_MS }, (name) => script.outcomeOf(name));
  });
});
