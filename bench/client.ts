import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { FIRST_COMMAND, WHAT, WHERE } from './names.ts';
import type { Row } from './report.ts';
import { repeat, Timings, timed } from './statistics.ts';

/** A create comes after a while in which nothing happened, as it does where the pool is waited for. */
const PAUSE_MS = 300;
const WARM_UP = 50;

/** The official client against a server that answers at once: what is left of every other figure when all of ours is taken away. */
export async function measureClient(count: number): Promise<Row[]> {
  const server = spawn(process.execPath, [path.join(import.meta.dirname, 'instant-server.ts')], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  try {
    const [line] = (await once(server.stdout, 'data')) as [Buffer];
    const url = `http://127.0.0.1:${Number(line)}`;
    const connection = { apiKey: `e2b_${'0'.repeat(40)}`, apiUrl: url, sandboxUrl: url };
    const where = WHERE.client;
    const sandbox = await Sandbox.create(connection);
    for (let call = 0; call < WARM_UP; call++) await sandbox.commands.run('true');
    const exec = await repeat(count, async () => (await timed(() => sandbox.commands.run('true'))).ms);
    const create = await repeat(count, async () => {
      await delay(PAUSE_MS);
      return (await timed(() => Sandbox.create(connection))).ms;
    });
    const burst = new Timings();
    const before = performance.now();
    const oneOfMany = async () => {
      await (await Sandbox.create(connection)).commands.run(FIRST_COMMAND);
      return performance.now() - before;
    };
    await Promise.all(Array.from({ length: count }, () => burst.add(oneOfMany)));
    return [
      { what: WHAT.create, where, summary: create },
      { what: WHAT.exec, where, summary: exec },
      { what: WHAT.burst, where, summary: burst.summary },
    ];
  } finally {
    server.kill();
  }
}
