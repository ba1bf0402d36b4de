import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { sweep } from './sweep.ts';

// A process of its own, in a session of its own, that outlives a test run which is interrupted or killed: when its input ends without
// the word that all is well, it ends the service of the state directory and removes everything that the service made.
//
// Lines it is told: `service <pid>` after every start of the service, `done` when the test has cleared up itself.

const stateDir = process.argv[2] as string;
let servicePid: number | undefined;
let done = false;

for await (const line of createInterface({ input: process.stdin })) {
  const [word, value] = line.split(' ');
  if (word === 'service') servicePid = Number(value);
  if (word === 'done') done = true;
}
if (!done) {
  if (servicePid !== undefined) await end(servicePid);
  await sweep(stateDir);
}

async function end(pid: number): Promise<void> {
  try {
    process.kill(pid, 'SIGKILL');
    for (let waited = 0; waited < 5000; waited += 50) {
      process.kill(pid, 0);
      await sleep(50);
    }
  } catch {
    // It is gone.
  }
}
