import { Sandbox } from 'e2b';

// A client of its own, whose connections end with it: node lives.ts <rounds> <at once>. Each life is create, command, kill. Prints the number of
// lives that went well, and every failure.

const [rounds = 1, atOnce = 1] = process.argv.slice(2).map(Number);
let begun = 0;
let lived = 0;

async function oneLife(index: number): Promise<void> {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
  const result = await sandbox.commands.run(`echo life ${index}`);
  if (result.stdout !== `life ${index}\n`) throw new Error(`it said ${JSON.stringify(result.stdout)}`);
  if (!(await sandbox.kill())) throw new Error('there was nothing to kill');
}

async function worker(): Promise<void> {
  while (begun < rounds) {
    const index = begun++;
    try {
      await oneLife(index);
      lived++;
    } catch (error) {
      console.error(`life ${index}: ${error instanceof Error ? error.stack : error}`);
    }
  }
}

await Promise.all(Array.from({ length: atOnce }, worker));
console.log(lived);
process.exit(0);
