import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { runCommand } from '../src/core/command.ts';
import { findProgram } from '../src/setup/find-program.ts';
import { freePort } from '../tests/support/free-port.ts';
import { closedAtLast } from './closing.ts';

export interface Nginx {
  port: number;
  stop: () => Promise<void>;
}

const START_WAIT_MS = 10_000;

/** nginx as the ceiling of what HTTP gives on this machine: files up and down, from a directory of its own. */
export function startNginxFiles(): Promise<Nginx | undefined> {
  return startNginx(
    (directory) => `location / { root ${directory}; dav_methods PUT; client_max_body_size 0; }`,
    (modules) => modules.includes('http_dav_module'),
  );
}

/** nginx in front of a server, as its manual has a reverse proxy. */
export function startNginxProxy(upstream: string): Promise<Nginx | undefined> {
  return startNginx(
    () =>
      'location / { proxy_pass http://upstream; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; proxy_buffering off; }',
    () => true,
    `upstream upstream { server ${upstream}; keepalive 64; }`,
  );
}

/** Starts nginx on a free port of the loopback interface. Undefined where it is not installed or lacks a module. */
async function startNginx(
  location: (directory: string) => string,
  suits: (modules: string) => boolean,
  more = '',
): Promise<Nginx | undefined> {
  const program = findProgram('nginx');
  if (program === undefined || !suits((await runCommand(program, ['-V'])).stderr)) return undefined;
  const port = await freePort();
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-nginx-'));
  const served = path.join(directory, 'files');
  mkdirSync(served);
  const file = path.join(directory, 'nginx.conf');
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${directory}/${name};`,
  );
  writeFileSync(
    file,
    `user root; daemon off; worker_processes 1; pid ${directory}/pid; error_log ${directory}/error.log;
events { worker_connections 1024; }
http {
  access_log off; sendfile on; ${temporary.join(' ')}
  ${more}
  server { listen 127.0.0.1:${port}; keepalive_requests 10000000; ${location(served)} }
}
`,
  );
  const child = spawn(program, ['-p', directory, '-c', file], { stdio: 'ignore' });
  const ended = once(child, 'exit');
  const stop = closedAtLast(async () => {
    child.kill('SIGTERM');
    await ended;
    rmSync(directory, { recursive: true, force: true });
  });
  const giveUpAt = Date.now() + START_WAIT_MS;
  while (!(await answers(port))) {
    if (child.exitCode === null && Date.now() < giveUpAt) await delay(20);
    else {
      await stop();
      throw new Error('nginx does not start');
    }
  }
  return { port, stop };
}

async function answers(port: number): Promise<boolean> {
  return fetch(`http://127.0.0.1:${port}/`).then(
    () => true,
    () => false,
  );
}
