/** What the rows that are set against others are called, written once so that a comparison cannot miss its row. */
export const WHAT = {
  create: 'create',
  firstCommand: 'create → first command, sequential',
  staggered: 'create → first command, staggered 200 ms',
  burst: 'create → first command, burst',
  burstAgain: 'create → first command, burst, after one like it',
  sustained: 'create → command → kill, sustained',
  start: 'start',
  exec: 'exec `true` in a login shell',
  spawn: 'spawn the same inside',
  writeSmall: 'write 1 KB',
  readSmall: 'read 1 KB',
  upload: 'large file, up',
  download: 'large file, down',
  output: 'output of a command',
  buildAll: 'build, every step',
  buildNothing: 'build, nothing changed',
  buildLast: 'build, last step changed',
  direct: '1 kB requests, directly',
  gateway: '1 kB requests, through the gateway',
  gatewayOfWorkers: '1 kB requests, through the gateway of two workers',
  proxied: '1 kB requests, through nginx',
  idle: (count: number) => `idle memory, ${count} sandboxes`,
  service: (count: number) => `the service's own memory, ${count} sandboxes`,
} as const;

export const WHERE = {
  cold: (runtime: string) => `${runtime}, cold`,
  warm: (runtime: string) => `${runtime}, warm pool`,
  bare: (runtime: string) => (runtime === 'gvisor' ? 'bare runsc' : 'bare crun'),
  /** The official client, with nothing behind the server. */
  client: 'client alone',
  docker: 'docker',
  nginx: 'nginx',
} as const;

/** The first command of the ComputeSDK suite; the base template has Node. */
export const FIRST_COMMAND = 'node -v';
/** What the official clients make of the command `true`. */
export const TRUE_IN_A_LOGIN_SHELL = ['/bin/bash', '-l', '-c', 'true'] as const;
