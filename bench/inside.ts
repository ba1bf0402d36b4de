import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import type { TestService } from '../tests/support/service.ts';
import { TRUE_IN_A_LOGIN_SHELL, WHAT } from './names.ts';
import type { Row } from './report.ts';
import { repeat, repeatRate, summarize, Timings, timed } from './statistics.ts';

export interface InsideSize {
  calls: number;
  lists: number;
  outputMb: number;
}

const MIB = 1024 * 1024;
const ENTRIES = 10_000;
const LONG = { timeoutMs: 600_000 };
const TURNS = 10;
const WARM_UP = 200;
const BUSY_MS = 3;
const IDLE_MS = 9;

/** Starts the command again and again from inside and prints what each took, ms: the floor of every way to run it. */
const SPAWN_LOOP = `
import json, os, sys, time
command, count, times = json.loads(sys.argv[1]), int(sys.argv[2]), []
for _ in range(count):
    before = time.perf_counter()
    os.waitpid(os.posix_spawn(command[0], command, os.environ), 0)
    times.append((time.perf_counter() - before) * 1000)
print(json.dumps(times))
`;

/** The in-sandbox interface: a command's round trip, small files, output, a large directory. */
export async function measureInside(service: TestService, where: string, size: InsideSize): Promise<Row[]> {
  const sandbox = await Sandbox.create({ ...service.connection, ...LONG });
  try {
    const rows: Row[] = [];
    const row = async (what: string, work: () => Promise<unknown>, samples = size.calls) => {
      await work();
      rows.push({ what, where, summary: await repeat(samples, async () => (await timed(work)).ms) });
    };
    rows.push(...(await running(sandbox, where, size.calls)));
    const small = 'x'.repeat(1024);
    await row(WHAT.writeSmall, () => sandbox.files.write('/home/user/small', small));
    await row(WHAT.readSmall, () => sandbox.files.read('/home/user/small'));
    await sandbox.commands.run(`mkdir many && cd many && for i in $(seq ${ENTRIES}); do : > f$i; done`, LONG);
    await row(`list ${ENTRIES.toLocaleString('en')} entries`, () => list(sandbox), size.lists);
    rows.push({
      what: WHAT.output,
      where,
      figure: await repeatRate(3, size.outputMb, () => output(sandbox, size.outputMb)),
      note: `${size.outputMb} MB`,
    });
    return rows;
  } finally {
    await sandbox.kill();
  }
}

/** A command through the client and the same spawned inside, turn by turn: how fast a machine is changes from minute to minute. */
async function running(sandbox: Sandbox, where: string, calls: number): Promise<Row[]> {
  await sandbox.files.write('/home/user/spawn.py', SPAWN_LOOP);
  const each = Math.ceil(calls / TURNS);
  const spawn = `python3 /home/user/spawn.py '${JSON.stringify(TRUE_IN_A_LOGIN_SHELL)}' ${each}`;
  // Node compiles on both sides what is called often.
  for (let call = 0; call < WARM_UP; call++) await sandbox.commands.run('true');
  const execs = new Timings();
  const spawned: number[] = [];
  const beside: number[] = [];
  const spawnAll = async () => JSON.parse((await sandbox.commands.run(spawn, LONG)).stdout) as number[];
  for (let turn = 0; turn < TURNS; turn++) {
    for (let call = 0; call < each; call++)
      await execs.add(async () => (await timed(() => sandbox.commands.run('true'))).ms);
    spawned.push(...(await spawnAll()));
    beside.push(...(await whileBusy(spawnAll)));
  }
  return [
    { what: WHAT.exec, where, summary: execs.summary },
    { what: WHAT.spawn, where, summary: summarize(spawned) },
    { what: 'spawn the same inside, one processor a quarter busy', where, summary: summarize(beside) },
  ];
}

/** With as much of a processor in use out here as client and service take while a command runs. */
async function whileBusy<T>(work: () => Promise<T>): Promise<T> {
  let done = false;
  const result = work().finally(() => {
    done = true;
  });
  while (!done) {
    for (const until = performance.now() + BUSY_MS; performance.now() < until; );
    await delay(IDLE_MS);
  }
  return result;
}

async function list(sandbox: Sandbox): Promise<void> {
  const entries = await sandbox.files.list('/home/user/many');
  if (entries.length !== ENTRIES) throw new Error(`${entries.length} entries were listed`);
}

async function output(sandbox: Sandbox, megabytes: number): Promise<void> {
  let received = 0;
  const onStdout = (data: string) => {
    received += data.length;
  };
  await sandbox.commands.run(`head -c ${megabytes * MIB} /dev/zero | tr '\\0' x`, { onStdout, ...LONG });
  if (received !== megabytes * MIB) throw new Error(`${received} bytes came`);
}
