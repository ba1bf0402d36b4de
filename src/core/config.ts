import { existsSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { messageOf, SandbarError } from './errors.ts';

export type RuntimeName = 'gvisor' | 'container';

/** Everything that can be set about the service, checked. */
export interface Config {
  host: string;
  port: number;
  stateDir: string;
  /** What set-up makes once for the machine: runsc, the agent, the base template. */
  cacheDir: string;
  /** Domain of sandbox URLs, `{port}-{id}.{domain}`; may carry a port. */
  domain: string;
  runtime: RuntimeName;
  databaseUrl: string | undefined;
  /** A fixed first API key, for tests and automation. */
  apiKey: string | undefined;
  tls: { certFile: string; keyFile: string } | undefined;
  /** IPv4 range of the sandboxes' addresses, CIDR; undefined: a free one is chosen and remembered. */
  networkRange: string | undefined;
  /** DNS servers that sandboxes' questions go to, `address[:port]`; none: the machine's own. */
  nameServers: string[];
  /** Connections one sandbox may have open to the outside. */
  sandboxConnections: number;
  /** What one sandbox may send, and receive, in a second; undefined: no limit. */
  sandboxBytesPerSecond: number | undefined;
  /** Key that secrets are encrypted with, 64 hex digits; undefined: one of the state directory. */
  secretsKey: string | undefined;
  /** Sandboxes a team may run at once. */
  maxSandboxes: number;
  /** Longest life of one run of a sandbox. */
  maxTimeoutSeconds: number;
  /** Sandboxes kept booted ahead for one template build in use: between these, as many as were lately asked for. */
  warmPool: { least: number; most: number };
  /** How long a paused sandbox stays in memory beside its image on disk, so that a resume is only a thaw. */
  pauseHoldSeconds: number;
  /** Size of a sandbox's writable disk where its template names none. */
  diskSizeMb: number;
  /** Longest time of one step of a template build. */
  buildStepSeconds: number;
  /** Template builds a team may run at once. */
  maxBuilds: number;
  /** Processes that serve connections beside the main one. */
  workers: number;
  logLevel: 'debug' | 'info' | 'warn' | 'error';
}

interface Setting {
  env: string;
  flag: string;
  help: string;
  fallback?: string;
}

/** With few processors a process more only takes memory: sandboxes and the main process have them busy. */
export function usualWorkers(processors: number): number {
  return processors < 4 ? 0 : Math.min(Math.floor(processors / 2), 16);
}

/** The settings, in the order `sandbar --help` prints them. */
export const settings = {
  host: { env: 'SANDBAR_HOST', flag: 'host', fallback: '0.0.0.0', help: 'address to listen on' },
  port: { env: 'SANDBAR_PORT', flag: 'port', fallback: '7070', help: 'port to listen on' },
  stateDir: {
    env: 'SANDBAR_STATE_DIR',
    flag: 'state-dir',
    fallback: '/var/lib/sandbar',
    help: 'where everything is kept',
  },
  cacheDir: {
    env: 'SANDBAR_CACHE_DIR',
    flag: 'cache-dir',
    fallback: '/var/cache/sandbar',
    help: 'where set-up keeps what it made for this machine',
  },
  domain: { env: 'SANDBAR_DOMAIN', flag: 'domain', fallback: 'sandbar.local', help: 'domain of sandbox URLs' },
  runtime: { env: 'SANDBAR_RUNTIME', flag: 'runtime', fallback: 'gvisor', help: 'gvisor or container' },
  databaseUrl: {
    env: 'SANDBAR_DATABASE_URL',
    flag: 'database-url',
    help: 'postgres://… (default: SQLite in the state directory)',
  },
  apiKey: { env: 'SANDBAR_API_KEY', flag: 'api-key', help: 'a fixed first API key, e2b_ and 40 hex digits' },
  tlsCert: { env: 'SANDBAR_TLS_CERT', flag: 'tls-cert', help: 'certificate file (PEM)' },
  tlsKey: { env: 'SANDBAR_TLS_KEY', flag: 'tls-key', help: 'private key file (PEM)' },
  networkRange: {
    env: 'SANDBAR_NETWORK_RANGE',
    flag: 'network-range',
    help: 'IPv4 range of sandbox addresses, /12 to /24 (default: a free one)',
  },
  nameServers: {
    env: 'SANDBAR_NAME_SERVERS',
    flag: 'name-servers',
    help: "DNS servers for the sandboxes, address[:port], comma-separated (default: the machine's own)",
  },
  sandboxConnections: {
    env: 'SANDBAR_SANDBOX_CONNECTIONS',
    flag: 'sandbox-connections',
    fallback: '4096',
    help: 'connections one sandbox may have open to the outside',
  },
  sandboxBandwidth: {
    env: 'SANDBAR_SANDBOX_MBIT',
    flag: 'sandbox-mbit',
    fallback: '0',
    help: 'Mbit a second one sandbox may send, and receive; 0: no limit',
  },
  secretsKey: {
    env: 'SANDBAR_SECRETS_KEY',
    flag: 'secrets-key',
    help: 'key of the stored secrets, 64 hex digits (default: one in the state directory)',
  },
  maxSandboxes: {
    env: 'SANDBAR_MAX_SANDBOXES',
    flag: 'max-sandboxes',
    fallback: '1000',
    help: 'sandboxes a team may run at once',
  },
  maxTimeout: {
    env: 'SANDBAR_MAX_TIMEOUT_HOURS',
    flag: 'max-timeout-hours',
    fallback: '24',
    help: 'longest life of one run of a sandbox',
  },
  warmPool: {
    env: 'SANDBAR_WARM_POOL',
    flag: 'warm-pool',
    fallback: '100',
    help: 'most sandboxes kept booted ahead for a template build, as many as were asked for within the last minute; 0 for none',
  },
  warmPoolLeast: {
    env: 'SANDBAR_WARM_POOL_LEAST',
    flag: 'warm-pool-least',
    fallback: '1',
    help: 'sandboxes kept booted ahead for a template build in use at least',
  },
  pauseHold: {
    env: 'SANDBAR_PAUSE_HOLD_SECONDS',
    flag: 'pause-hold-seconds',
    fallback: '15',
    help: 'how long a paused sandbox stays in memory too',
  },
  diskSizeMb: {
    env: 'SANDBAR_DISK_SIZE_MB',
    flag: 'disk-size-mb',
    fallback: '10240',
    help: 'writable disk of a sandbox, MiB',
  },
  buildStepSeconds: {
    env: 'SANDBAR_BUILD_STEP_SECONDS',
    flag: 'build-step-seconds',
    fallback: '3600',
    help: 'longest time of one step of a template build',
  },
  maxBuilds: {
    env: 'SANDBAR_MAX_BUILDS',
    flag: 'max-builds',
    fallback: '20',
    help: 'template builds a team may run at once',
  },
  workers: {
    env: 'SANDBAR_WORKERS',
    flag: 'workers',
    fallback: String(usualWorkers(availableParallelism())),
    help: 'processes that serve connections beside the main one; by itself half the processors from four on, at most 16',
  },
  logLevel: { env: 'SANDBAR_LOG_LEVEL', flag: 'log-level', fallback: 'info', help: 'debug, info, warn or error' },
} as const satisfies Record<string, Setting>;

type SettingName = keyof typeof settings;

/** Reads the settings; flags win over the environment. Throws one error that names every setting that is wrong. */
export function loadConfig(env: NodeJS.ProcessEnv, flags: Record<string, string | undefined> = {}): Config {
  const problems: string[] = [];
  const text = (name: SettingName): string | undefined => {
    const setting: Setting = settings[name];
    return flags[setting.flag] || env[setting.env] || setting.fallback;
  };
  const required = (name: SettingName): string => text(name) ?? '';
  const integer = (name: SettingName, least: number, most: number): number => {
    const raw = required(name);
    const value = Number(raw);
    if (!Number.isInteger(value) || value < least || value > most)
      problems.push(`${settings[name].env} must be a whole number from ${least} to ${most}, not '${raw}'`);
    return value;
  };
  const choice = <T extends string>(name: SettingName, values: readonly T[]): T => {
    const raw = required(name);
    const found = values.find((value) => value === raw);
    if (found === undefined) problems.push(`${settings[name].env} must be ${values.join(' or ')}, not '${raw}'`);
    return found ?? (values[0] as T);
  };
  const directory = (name: SettingName): string => {
    const raw = required(name);
    if (!path.isAbsolute(raw)) problems.push(`${settings[name].env} must be an absolute path, not '${raw}'`);
    return path.resolve(raw);
  };

  const config: Config = {
    host: required('host'),
    port: integer('port', 0, 65535),
    stateDir: directory('stateDir'),
    cacheDir: directory('cacheDir'),
    domain: required('domain').toLowerCase(),
    runtime: choice('runtime', ['gvisor', 'container']),
    databaseUrl: text('databaseUrl'),
    apiKey: text('apiKey'),
    tls: undefined,
    networkRange: text('networkRange'),
    nameServers: (text('nameServers') ?? '').split(',').filter(Boolean),
    sandboxConnections: integer('sandboxConnections', 1, 1_000_000),
    sandboxBytesPerSecond: (integer('sandboxBandwidth', 0, 1_000_000) * 1_000_000) / 8 || undefined,
    secretsKey: text('secretsKey'),
    maxSandboxes: integer('maxSandboxes', 1, 1_000_000),
    maxTimeoutSeconds: integer('maxTimeout', 1, 24 * 365) * 3600,
    warmPool: { least: integer('warmPoolLeast', 0, 1000), most: integer('warmPool', 0, 1000) },
    pauseHoldSeconds: integer('pauseHold', 0, 86_400),
    diskSizeMb: integer('diskSizeMb', 64, 16 * 1024 * 1024),
    buildStepSeconds: integer('buildStepSeconds', 1, 24 * 3600),
    maxBuilds: integer('maxBuilds', 1, 1000),
    workers: integer('workers', 0, 64),
    logLevel: choice('logLevel', ['debug', 'info', 'warn', 'error']),
  };

  if (!/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?$/.test(config.domain))
    problems.push(`SANDBAR_DOMAIN must be a domain name, not '${config.domain}'`);
  if (config.databaseUrl !== undefined && !/^postgres(ql)?:\/\//.test(config.databaseUrl))
    problems.push('SANDBAR_DATABASE_URL must begin with postgres://');
  if (config.apiKey !== undefined && !/^e2b_[0-9a-f]{40}$/.test(config.apiKey))
    problems.push('SANDBAR_API_KEY must be e2b_ followed by 40 hex digits');
  if (config.networkRange !== undefined && !isUsableRange(config.networkRange))
    problems.push(`SANDBAR_NETWORK_RANGE must be an IPv4 range from /12 to /24, not '${config.networkRange}'`);
  for (const server of config.nameServers) {
    if (!/^(\d{1,3}\.){3}\d{1,3}(:\d{1,5})?$/.test(server))
      problems.push(`SANDBAR_NAME_SERVERS must be IPv4 addresses, not '${server}'`);
  }
  if (config.secretsKey !== undefined && !/^[0-9a-f]{64}$/i.test(config.secretsKey))
    problems.push('SANDBAR_SECRETS_KEY must be 64 hex digits');
  const certFile = text('tlsCert');
  const keyFile = text('tlsKey');
  if ((certFile === undefined) !== (keyFile === undefined))
    problems.push('SANDBAR_TLS_CERT and SANDBAR_TLS_KEY go together');
  if (certFile !== undefined && keyFile !== undefined) {
    for (const file of [certFile, keyFile]) problems.push(...unreadable(file));
    config.tls = { certFile, keyFile };
  }
  if (config.warmPool.most > 0 && config.warmPool.least > config.warmPool.most)
    problems.push('SANDBAR_WARM_POOL_LEAST must not be greater than SANDBAR_WARM_POOL');
  if (problems.length > 0) throw new SandbarError('invalid', problems.join('\n'));
  return config;
}

function unreadable(file: string): string[] {
  if (!existsSync(file)) return [`TLS file ${file} does not exist`];
  try {
    readFileSync(file);
    return [];
  } catch (error) {
    return [`TLS file ${file} cannot be read: ${messageOf(error)}`];
  }
}

function isUsableRange(range: string): boolean {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(range);
  if (!match) return false;
  const octets = match.slice(1, 5).map(Number);
  const prefix = Number(match[5]);
  return octets.every((octet) => octet <= 255) && prefix >= 12 && prefix <= 24;
}
