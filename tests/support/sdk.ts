import { Sandbox, type SandboxOpts } from 'e2b';
import { beforeAll } from 'vitest';
import type { RuntimeName } from '../../src/core/config.ts';
import { describeOnRuntimes, type TestService, type TestServiceOptions } from './service.ts';

/** What a suite in a sandbox works with; the functions are for the bodies of tests and hooks. */
export interface Inside {
  sandbox(): Sandbox;
  service(): TestService;
  runtime: RuntimeName;
  /** A new directory in the home of the user, for one test. */
  fresh(): Promise<string>;
  /** Standard output of a shell command as the default user. */
  shell(command: string): Promise<string>;
  /** The same as root. */
  rootShell(command: string): Promise<string>;
}

/** Runs a suite in a sandbox of each runtime, through the official JavaScript SDK. All its tests share the sandbox. */
export function describeInSandbox(
  name: string,
  suite: (inside: Inside) => void,
  options: { sandbox?: SandboxOpts; service?: Omit<TestServiceOptions, 'runtime'> } = {},
): void {
  describeOnRuntimes(
    name,
    (service, runtime) => {
      let sandbox: Sandbox | undefined;
      let directories = 0;
      beforeAll(async () => {
        sandbox = await Sandbox.create({ timeoutMs: 600_000, ...options.sandbox, ...service().connection });
      });
      const inside: Inside = {
        sandbox: () => sandbox as Sandbox,
        service,
        runtime,
        async fresh() {
          const directory = `/home/user/test-${++directories}`;
          await inside.sandbox().files.makeDir(directory);
          return directory;
        },
        shell: async (command) => (await inside.sandbox().commands.run(command)).stdout,
        rootShell: async (command) => (await inside.sandbox().commands.run(command, { user: 'root' })).stdout,
      };
      suite(inside);
    },
    options.service,
  );
}

/** What a promise fails with. */
export async function failureOf(promise: Promise<unknown>): Promise<Error> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Error) return error;
    throw error;
  }
  throw new Error('it did not fail');
}
