import http from 'node:http';

// Asks one server as fast as it answers, over a number of kept connections, and prints the times of all answers.

interface Target {
  address: string;
  port: number;
  host: string;
  seconds: number;
  connections: number;
}

const { address, port, host, seconds, connections } = JSON.parse(process.argv[2] ?? '{}') as Target;
const agent = new http.Agent({ keepAlive: true, maxSockets: connections });
const times: number[] = [];
let failures = 0;

function ask(): Promise<void> {
  return new Promise((resolve) => {
    const started = performance.now();
    const failed = () => {
      failures++;
      resolve();
    };
    const req = http.get({ host: address, port, path: '/', headers: { host }, agent }, (res) => {
      if (res.statusCode !== 200) failures++;
      else res.on('end', () => times.push(performance.now() - started));
      res.on('close', resolve).resume();
    });
    req.on('error', failed);
  });
}

const WARM_UP_MS = 500;
const begin = Date.now() + WARM_UP_MS;
let measuring = false;
await Promise.all(
  Array.from({ length: connections }, async () => {
    while (Date.now() < begin + seconds * 1000) {
      await ask();
      if (!measuring && Date.now() >= begin) {
        measuring = true;
        times.length = 0;
        failures = 0;
      }
    }
  }),
);
// A pipe takes it in pieces; an exit before the last would cut it off.
process.stdout.write(JSON.stringify({ times, failures }), () => process.exit(0));
