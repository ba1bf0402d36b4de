import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import type { RuntimeName } from '../src/core/config.ts';
import { Layout } from '../src/node/layout.ts';
import { TestInternet } from '../tests/support/internet.ts';
import { startTestService, type TestService } from '../tests/support/service.ts';
import { closedAtLast } from './closing.ts';
import { WHAT } from './names.ts';
import { startNginxProxy } from './nginx.ts';
import type { Row } from './report.ts';
import { repeatRate, type Summary, summarize } from './statistics.ts';

export interface NetworkSize {
  /** How long each way is asked. */
  seconds: number;
  /** Size of a download. */
  megabytes: number;
}

const CONNECTIONS = 32;
const MB = 1024 * 1024;
const ROUNDS = 3;
const WORKERS = 2;

interface LoadTarget {
  address: string;
  port: number;
  host: string;
  seconds: number;
}

/** A server inside that answers at once, so that what is measured is the way to it. */
const SERVER = `
import http from 'node:http';
const body = Buffer.alloc(1024, 'x');
http.createServer((req, res) => { res.setHeader('content-length', body.length); res.end(body); }).listen(3000, '0.0.0.0', () => console.log('ready'));
`;

/** Requests through the gateway beside a direct connection and nginx; downloads out of a sandbox with and without rules. */
export async function measureNetwork(runtime: RuntimeName, size: NetworkSize): Promise<Row[]> {
  const internet = await TestInternet.start();
  // On a signal, the service's guard clears up for it; the internet has none.
  const close = closedAtLast(() => internet.stop());
  try {
    await internet.setNames({ 'allowed.test': [TestInternet.allowed], 'ruled.test': [TestInternet.allowed] });
    const service = await startTestService({
      runtime,
      env: { SANDBAR_NAME_SERVERS: TestInternet.dns, NODE_EXTRA_CA_CERTS: internet.authorityFile },
    });
    try {
      const rows = [...(await gateway(service, runtime, size)), ...(await egress(service, runtime, size))];
      return [...rows, await gatewayOfWorkers(runtime, size)];
    } finally {
      await service.dispose();
    }
  } finally {
    await close();
  }
}

async function gateway(service: TestService, where: string, { seconds }: NetworkSize): Promise<Row[]> {
  const sandbox = await startServer(service);
  const guest = addressOf(service, sandbox.sandboxId);
  const host = hostOf(service, sandbox);
  const rows: Row[] = [];
  const add = async (what: string, address: string, port: number) =>
    rows.push(await loadRow(what, where, { address, port, host, seconds }));
  await add(WHAT.direct, guest, 3000);
  await add(WHAT.gateway, '127.0.0.1', service.port);
  const nginx = await startNginxProxy(`${guest}:3000`);
  if (nginx === undefined) rows.push({ what: WHAT.proxied, where, note: 'nginx is not installed' });
  else
    try {
      await add(WHAT.proxied, '127.0.0.1', nginx.port);
    } finally {
      await nginx.stop();
    }
  await sandbox.kill();
  return rows;
}

/** The same by a service of several processes. */
async function gatewayOfWorkers(runtime: RuntimeName, { seconds }: NetworkSize): Promise<Row> {
  const service = await startTestService({ runtime, env: { SANDBAR_WORKERS: String(WORKERS) } });
  try {
    const host = hostOf(service, await startServer(service));
    return await loadRow(WHAT.gatewayOfWorkers, runtime, { address: '127.0.0.1', port: service.port, host, seconds });
  } finally {
    await service.dispose();
  }
}

/** A sandbox with the server in it. */
async function startServer(service: TestService): Promise<Sandbox> {
  const sandbox = await Sandbox.create('base', { timeoutMs: 600_000, ...service.connection });
  await sandbox.files.write('/home/user/server.mjs', SERVER);
  const started = await sandbox.commands.run('node /home/user/server.mjs', { background: true, timeoutMs: 0 });
  while (!started.stdout.includes('ready')) await delay(20);
  return sandbox;
}

function hostOf(service: TestService, sandbox: Sandbox): string {
  return `3000-${sandbox.sandboxId}.${service.domain}`;
}

async function loadRow(what: string, where: string, target: LoadTarget): Promise<Row> {
  const { perSecond, summary } = await load(target);
  return { what, where, summary, note: `${perSecond.toFixed(0)}/s, ${CONNECTIONS} connections` };
}

async function egress(service: TestService, where: string, { megabytes }: NetworkSize): Promise<Row[]> {
  const sandbox = await Sandbox.create('base', { timeoutMs: 600_000, ...service.connection });
  const thousand = Array.from({ length: 1000 }, (_, index) => `198.${20 + (index >> 8)}.${index & 255}.0/25`);
  const deny = ['0.0.0.0/0'];
  const headers = { 'X-Key': 'abc' };
  const ways = [
    ['no rules', {}, `http://${TestInternet.allowed}`],
    ['1,000 address rules', { denyOut: thousand }, `http://${TestInternet.allowed}`],
    ['a name rule', { allowOut: ['allowed.test'], denyOut: deny }, 'http://allowed.test'],
    ['a header rule, HTTPS', { rules: { 'ruled.test': [{ transform: { headers } }] } }, 'https://ruled.test'],
  ] as const;
  const rows: Row[] = [];
  for (const [name, network, url] of ways) {
    await sandbox.updateNetwork(network as never);
    const figure = await repeatRate(ROUNDS, megabytes, async () => {
      const command = `curl -sS --fail -o /dev/null -w '%{size_download}' '${url}/bytes?n=${megabytes * MB}'`;
      const { stdout } = await sandbox.commands.run(command, { timeoutMs: 300_000 });
      if (Number(stdout) !== megabytes * MB) throw new Error(`${stdout} bytes came`);
    });
    rows.push({ what: `download, ${name}`, where, figure, note: `${megabytes} MB` });
  }
  await sandbox.kill();
  return rows;
}

/** Asks as fast as it goes from a process of its own, whose work is not the service's. */
async function load(target: LoadTarget): Promise<{ perSecond: number; summary: Summary }> {
  const child = spawn(
    process.execPath,
    [path.join(import.meta.dirname, 'network-load.ts'), JSON.stringify({ ...target, connections: CONNECTIONS })],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  let text = '';
  for await (const chunk of child.stdout) text += chunk;
  const { times, failures } = JSON.parse(text) as { times: number[]; failures: number };
  return { perSecond: times.length / target.seconds, summary: summarize(times, failures) };
}

/** The address of a sandbox on this machine. */
function addressOf(service: TestService, sandboxId: string): string {
  const layout = new Layout(service.stateDir);
  const { slot } = JSON.parse(readFileSync(path.join(layout.sandboxDir(sandboxId), 'record.json'), 'utf8')) as {
    slot: number;
  };
  const { range } = JSON.parse(readFileSync(layout.networkFile, 'utf8')) as { range: string };
  const [a, b] = range.split('.');
  const low = slot * 4 + 2;
  return `${a}.${b}.${low >> 8}.${low & 255}`;
}
