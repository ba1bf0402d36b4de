import { parseArgs } from 'node:util';
import { type Config, loadConfig, settings } from '../core/config.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { helpText } from './help.ts';
import { UsageError } from './usage-error.ts';

interface Invocation {
  config: () => Config;
  /** Words after the command. */
  words: string[];
  /** Options that belong to the command alone. */
  options: Record<string, string | boolean | undefined>;
}

interface Command {
  /** How many words may follow the command. */
  words: number;
  options?: Record<string, { type: 'string' | 'boolean' }>;
  /** Gives the exit status; undefined leaves the process running. Modules are loaded only for the command that needs them. */
  run(invocation: Invocation): Promise<number | undefined>;
}

const commands: Record<string, Command> = {
  serve: {
    words: 0,
    async run({ config }) {
      const { startService } = await import('./serve.ts');
      const service = await startService(config());
      stopOnSignal(service.stop);
      return undefined;
    },
  },
  setup: {
    words: 0,
    options: { 'for-tests': { type: 'boolean' }, again: { type: 'boolean' } },
    async run({ config, options }) {
      const { setUp } = await import('../setup/setup.ts');
      await setUp(config(), { forTests: options['for-tests'] === true, again: options['again'] === true });
      return 0;
    },
  },
  doctor: {
    words: 0,
    async run({ config }) {
      const { runDoctor } = await import('./doctor.ts');
      return (await runDoctor(config())) ? 0 : 1;
    },
  },
  keys: {
    words: 2,
    options: { name: { type: 'string' } },
    async run({ config, words, options }) {
      const { runKeys } = await import('./keys.ts');
      return runKeys(config(), words, typeof options['name'] === 'string' ? options['name'] : undefined);
    },
  },
  tls: {
    words: 0,
    async run({ config }) {
      const { runTls } = await import('./tls.ts');
      return runTls(config());
    },
  },
  templates: {
    words: 2,
    options: { all: { type: 'boolean' }, force: { type: 'boolean' } },
    async run({ config, words, options }) {
      const { runTemplates } = await import('./templates.ts');
      return runTemplates(config(), words, { all: options['all'] === true, force: options['force'] === true });
    },
  },
  version: {
    words: 0,
    async run() {
      const { version } = await import('./version.ts');
      console.log(`sandbar ${version}`);
      return 0;
    },
  },
  help: {
    words: 0,
    async run() {
      console.log(helpText());
      return 0;
    },
  },
};

/** Ends the service in good order when it is told to; told twice, at once. */
function stopOnSignal(stop: () => Promise<void>): void {
  let stopping = false;
  const onSignal = () => {
    if (stopping) process.exit(1);
    stopping = true;
    stop().then(
      () => process.exit(0),
      (error: unknown) => {
        console.error(`sandbar: ${messageOf(error)}`);
        process.exit(1);
      },
    );
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
}

/** Status of a command that was not understood, as distinct from one that failed (1). */
const USAGE_STATUS = 2;

/** Runs one command line. Gives the exit status; undefined when something was started that goes on. */
export async function runCli(argv: readonly string[]): Promise<number | undefined> {
  try {
    const { command, invocation } = readCommandLine(argv);
    return await command.run(invocation);
  } catch (error) {
    const lines = messageOf(error).split('\n');
    console.error(lines.map((line) => `sandbar: ${line}`).join('\n'));
    if (!(error instanceof SandbarError) && error instanceof Error) console.error(error.stack);
    if (!(error instanceof UsageError)) return 1;
    console.error('sandbar: `sandbar help` lists the commands and settings');
    return USAGE_STATUS;
  }
}

function readCommandLine(argv: readonly string[]): { command: Command; invocation: Invocation } {
  const [name = 'help', ...rest] = argv;
  if (['-h', '--help'].some((flag) => argv.includes(flag))) return { command: named('help'), invocation: nothing };
  if (name === '--version') return { command: named('version'), invocation: nothing };
  const command = named(name);
  const { values, positionals } = parse(command, rest);
  if (positionals.length > command.words)
    throw new UsageError(`unexpected '${positionals[command.words]}' after 'sandbar ${name}'`);

  const flags: Record<string, string | undefined> = {};
  for (const { flag } of Object.values(settings)) {
    const value = values[flag];
    if (typeof value === 'string') flags[flag] = value;
  }
  const config = () => {
    try {
      return loadConfig(process.env, flags);
    } catch (error) {
      throw new UsageError(messageOf(error));
    }
  };
  return { command, invocation: { config, words: positionals, options: values } };
}

const nothing: Invocation = {
  config: () => loadConfig(process.env),
  words: [],
  options: {},
};

function named(name: string): Command {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) throw new UsageError(`unknown command '${name}'`);
  return command;
}

function parse(command: Command, args: string[]) {
  const settingOptions = Object.fromEntries(
    Object.values(settings).map(({ flag }) => [flag, { type: 'string' as const }]),
  );
  try {
    return parseArgs({
      args,
      options: { ...settingOptions, ...command.options },
      allowPositionals: true,
      strict: true,
    });
  } catch (error) {
    throw new UsageError(messageOf(error).split('. ')[0] ?? '');
  }
}
