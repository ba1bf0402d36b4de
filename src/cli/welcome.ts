import type { Config, RuntimeName } from '../core/config.ts';

export interface Welcome {
  config: Pick<Config, 'host' | 'stateDir'>;
  /** The port that is really listened on: the configured one may be 0. */
  port: number;
  tls: boolean;
  runtime: RuntimeName;
  /** Where runsc came from; undefined when there is none. */
  runscOrigin: string | undefined;
  /** Only on the first start, or when it was given by setting: a key that exists is stored as a hash. */
  apiKey: string | undefined;
}

/** What a start prints once it serves: where it listens, what isolates the sandboxes and, on the first start, what to paste. */
export function welcomeText(welcome: Welcome): string {
  const url = `${welcome.tls ? 'https' : 'http'}://${reachableHost(welcome.config.host)}:${welcome.port}`;
  const lines = [
    '',
    `Sandbar is serving on ${url}`,
    `  runtime  ${runtimeLine(welcome)}`,
    `  state    ${welcome.config.stateDir}`,
  ];
  if (welcome.apiKey === undefined) {
    lines.push('', 'API keys: `scripts/sandbar keys create` makes one, `scripts/sandbar keys list` lists them.', '');
    return lines.join('\n');
  }
  lines.push('', 'Paste into the shell that runs your program:', '', environment(url, welcome.apiKey), '');
  lines.push('and try it (`npm install e2b`):', '', snippet, '');
  return lines.join('\n');
}

function runtimeLine({ runtime, runscOrigin }: Welcome): string {
  if (runtime === 'gvisor') return `gvisor (runsc, ${runscOrigin ?? 'unknown origin'})`;
  const why = runscOrigin === undefined ? 'no runsc could be had for this machine; ' : '';
  return `container (${why}sandboxes share the host kernel: for code you trust)`;
}

/** An address that a client on this machine can use. */
function reachableHost(host: string): string {
  if (host === '0.0.0.0' || host === '::' || host === '') return 'localhost';
  return host.includes(':') ? `[${host}]` : host;
}

function environment(url: string, apiKey: string): string {
  return [`export E2B_API_URL=${url}`, `export E2B_SANDBOX_URL=${url}`, `export E2B_API_KEY=${apiKey}`].join('\n');
}

const snippet = `// hello.mjs
import { Sandbox } from 'e2b';

const sandbox = await Sandbox.create();
const result = await sandbox.commands.run('python3 -c "print(6*7)"');
console.log(result.stdout);
await sandbox.files.write('/home/user/note.txt', 'written from outside');
console.log(await sandbox.files.read('/home/user/note.txt'));
await sandbox.kill();`;
