import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import type { RuntimeName } from '../src/core/config.ts';
import { Layout } from '../src/node/layout.ts';
import { findProgram } from '../src/setup/find-program.ts';
import { TestInternet } from '../tests/support/internet.ts';
import { startTestService, type TestService } from '../tests/support/service.ts';
import type { Row } from './report.ts';
import { type Summary, summarize } from './statistics.ts';

export interface NetworkSize {
  /** How long each way is asked. */
  seconds: number;
  /** Size of a download. */
  megabytes: number;
}

const CONNECTIONS = 32;
const MB = 1024 * 1024;

/** A server inside that answers at once, so that what is measured is the way to it. */
const SERVER = `
import http from 'node:http';
const body = Buffer.alloc(1024, 'x');
http.createServer((req, res) => { res.setHeader('content-length', body.length); res.end(body); }).listen(3000, '0.0.0.0', () => console.log('ready'));
`;

/** Requests through the gateway beside a direct connection and nginx; downloads out of a sandbox with and without rules. */
export async function measureNetwork(runtime: RuntimeName, size: NetworkSize): Promise<Row[]> {
  const internet = await TestInternet.start();
  await internet.setNames({ 'allowed.test': [TestInternet.allowed], 'ruled.test': [TestInternet.allowed] });
  const service = await startTestService({
    runtime,
    env: { SANDBAR_NAME_SERVERS: TestInternet.dns, NODE_EXTRA_CA_CERTS: internet.authorityFile },
  });
  try {
    return [...(await gateway(service, runtime, size)), ...(await egress(service, runtime, size))];
  } finally {
    await service.dispose();
    await internet.stop();
  }
}

async function gateway(service: TestService, where: string, { seconds }: NetworkSize): Promise<Row[]> {
  const sandbox = await Sandbox.create('base', { timeoutMs: 600_000, ...service.connection });
  await sandbox.files.write('/home/user/server.mjs', SERVER);
  const started = await sandbox.commands.run('node /home/user/server.mjs', { background: true, timeoutMs: 0 });
  while (!started.stdout.includes('ready')) await delay(20);
  const guest = addressOf(service, sandbox.sandboxId);
  const host = `3000-${sandbox.sandboxId}.${service.domain}`;
  const rows: Row[] = [];
  const add = async (way: string, address: string, port: number) => {
    const { perSecond, summary } = await load({ address, port, host, seconds });
    rows.push({
      what: `1 kB requests, ${way}`,
      where,
      summary,
      note: `${perSecond.toFixed(0)}/s, ${CONNECTIONS} connections`,
    });
  };
  await add('directly', guest, 3000);
  await add('through the gateway', '127.0.0.1', service.port);
  const nginx = await startNginx(guest);
  if (nginx === undefined)
    rows.push({ what: '1 kB requests, through nginx', where, value: '–', note: 'nginx is not installed' });
  else {
    await add('through nginx', '127.0.0.1', nginx.port);
    await nginx.stop();
  }
  await sandbox.kill();
  return rows;
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
    let best = 0;
    for (let round = 0; round < 3; round++) {
      const command = `curl -sS -o /dev/null -w '%{speed_download}' '${url}/bytes?n=${megabytes * MB}'`;
      const { stdout } = await sandbox.commands.run(command, { timeoutMs: 300_000 });
      best = Math.max(best, Number(stdout));
    }
    rows.push({
      what: `download, ${name}`,
      where,
      value: `${(best / MB).toFixed(0)} MB/s`,
      note: `best of 3 × ${megabytes} MB`,
    });
  }
  await sandbox.kill();
  return rows;
}

/** Asks as fast as it goes from a process of its own, whose work is not the service's. */
async function load(target: {
  address: string;
  port: number;
  host: string;
  seconds: number;
}): Promise<{ perSecond: number; summary: Summary }> {
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

/** nginx in front of the same server, as its manual has a reverse proxy; undefined where there is none. */
async function startNginx(guest: string): Promise<{ port: number; stop: () => Promise<void> } | undefined> {
  const program = findProgram('nginx');
  if (program === undefined) return undefined;
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-nginx-'));
  const port = await freePort();
  const file = path.join(directory, 'nginx.conf');
  writeFileSync(
    file,
    `daemon off; worker_processes 1; pid ${directory}/pid; error_log ${directory}/error.log;
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path ${directory}/body; proxy_temp_path ${directory}/proxy;
  fastcgi_temp_path ${directory}/f; uwsgi_temp_path ${directory}/u; scgi_temp_path ${directory}/s;
  upstream guest { server ${guest}:3000; keepalive 64; }
  server {
    listen 127.0.0.1:${port};
    keepalive_requests 10000000;
    location / { proxy_pass http://guest; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; proxy_buffering off; }
  }
}`,
  );
  const child: ChildProcess = spawn(program, ['-p', directory, '-c', file], { stdio: 'ignore' });
  await delay(500);
  if (child.exitCode !== null) return undefined;
  const stop = async () => {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
    rmSync(directory, { recursive: true, force: true });
  };
  return { port, stop };
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

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}
