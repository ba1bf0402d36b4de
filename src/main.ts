import { runCli } from './cli/cli.ts';

const status = await runCli(process.argv.slice(2));
// A service that could not start may have parts of it running, which would keep the process alive.
if (status !== undefined) process.exit(status);
