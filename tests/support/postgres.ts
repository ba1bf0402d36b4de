import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, globSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { runCommand } from '../../src/core/command.ts';

/** A PostgreSQL cluster of the test's own, from the machine's packages, in a directory that goes away with it. */
export interface TestPostgres {
  /** Makes an empty database and returns its URL. */
  freshDatabase(): Promise<string>;
  stop(): Promise<void>;
}

export async function startPostgres(): Promise<TestPostgres> {
  const bin = findBinaries();
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-pg-'));
  const asUser = await userSwitch(directory);
  const data = path.join(directory, 'data');
  const [program, ...rest] = [...asUser, path.join(bin, 'initdb')];
  await runCommand(program ?? '', [...rest, '-D', data, '-U', 'postgres', '-A', 'trust', '--no-sync', '-E', 'UTF8']);

  // A Unix socket in the directory alone: no port to clash with another cluster. Nothing here must survive a power cut.
  const settings = ['-c', 'listen_addresses=', '-c', 'fsync=off', '-c', 'full_page_writes=off', '-k', directory];
  const [server, ...serverArgs] = [...asUser, path.join(bin, 'postgres'), '-D', data, ...settings];
  const child = spawn(server ?? '', serverArgs, { stdio: ['ignore', 'ignore', 'pipe'], cwd: directory });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-4000);
  });

  const urlOf = (database: string) => `postgres://postgres@localhost/${database}?host=${directory}`;
  try {
    await untilAnswers(urlOf('postgres'), child, () => said);
  } catch (error) {
    await end(child, directory);
    throw error;
  }
  let count = 0;
  return {
    async freshDatabase() {
      const name = `test_${++count}`;
      await query(urlOf('postgres'), `create database ${name}`);
      return urlOf(name);
    },
    stop: () => end(child, directory),
  };
}

function findBinaries(): string {
  const found = globSync('/usr/lib/postgresql/*/bin')
    .filter((bin) => existsSync(path.join(bin, 'initdb')))
    .sort((one, other) => one.localeCompare(other, 'en', { numeric: true }))
    .at(-1);
  if (found === undefined) throw new Error('PostgreSQL is not installed: apt-get install postgresql');
  return found;
}

/** PostgreSQL refuses to run as root. `--pdeathsig` ends the server also when the tests are killed. */
async function userSwitch(directory: string): Promise<string[]> {
  if (process.getuid?.() !== 0) return ['setpriv', '--pdeathsig', 'INT'];
  const [uid, gid] = await Promise.all(
    ['-u', '-g'].map(async (flag) => Number((await runCommand('id', [flag, 'postgres'])).stdout)),
  );
  chownSync(directory, uid ?? -1, gid ?? -1);
  return ['setpriv', '--reuid', String(uid), '--regid', String(gid), '--clear-groups', '--pdeathsig', 'INT'];
}

async function untilAnswers(url: string, child: ChildProcess, said: () => string): Promise<void> {
  const deadline = Date.now() + 30_000;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`PostgreSQL ended: ${said()}`);
    try {
      await query(url, 'select 1');
      return;
    } catch (error) {
      if (Date.now() > deadline) throw new Error(`PostgreSQL does not answer: ${said()}`, { cause: error });
      await sleep(50);
    }
  }
}

async function query(url: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}

async function end(child: ChildProcess, directory: string): Promise<void> {
  if (child.exitCode === null) {
    const gone = once(child, 'exit');
    // SIGQUIT is PostgreSQL's immediate shutdown: the data are thrown away anyway.
    child.kill('SIGQUIT');
    await gone;
  }
  rmSync(directory, { recursive: true, force: true });
}
