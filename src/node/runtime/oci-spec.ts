import type { BootRequest } from './contract.ts';

export interface OciMount {
  destination: string;
  type?: string;
  source?: string;
  options?: string[];
}

/** The parts of an OCI runtime configuration that we set. */
export interface OciSpec {
  ociVersion: string;
  hostname: string;
  process: {
    terminal: boolean;
    user: { uid: number; gid: number };
    args: string[];
    env: string[];
    cwd: string;
    capabilities: Record<'bounding' | 'effective' | 'permitted', string[]>;
    noNewPrivileges: boolean;
  };
  root: { path: string; readonly: boolean };
  mounts: OciMount[];
  annotations?: Record<string, string>;
  linux: {
    namespaces: { type: string; path?: string }[];
    cgroupsPath?: string;
    uidMappings?: { containerID: number; hostID: number; size: number }[];
    gidMappings?: { containerID: number; hostID: number; size: number }[];
    maskedPaths?: string[];
    readonlyPaths?: string[];
    seccomp?: unknown;
  };
}

/** Where the agent is mounted in every sandbox. */
export const AGENT_PATH = '/.sandbar/agent';

/** Docker's default set: enough for package managers, sudo and servers on low ports. */
export const CAPABILITIES = [
  'CAP_AUDIT_WRITE',
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_MKNOD',
  'CAP_NET_BIND_SERVICE',
  'CAP_NET_RAW',
  'CAP_SETFCAP',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_CHROOT',
];

/** What both runtimes have in common: the agent as PID 1 with its secret, the usual mounts, the sandbox's network. */
export function baseSpec(request: BootRequest, rootPath: string, capabilities: string[]): OciSpec {
  return {
    ociVersion: '1.0.2',
    hostname: 'e2b.local',
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: [AGENT_PATH],
      env: [`SANDBAR_SECRET=${request.agentSecret}`],
      cwd: '/',
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
      noNewPrivileges: false,
    },
    root: { path: rootPath, readonly: false },
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
      {
        destination: '/dev',
        type: 'tmpfs',
        source: 'tmpfs',
        options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
      },
      {
        destination: '/dev/pts',
        type: 'devpts',
        source: 'devpts',
        options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620', 'gid=5'],
      },
      {
        destination: '/dev/shm',
        type: 'tmpfs',
        source: 'shm',
        options: ['nosuid', 'nodev', 'mode=1777', `size=${Math.max(64, Math.floor(request.memoryMb / 2))}m`],
      },
      { destination: AGENT_PATH, type: 'bind', source: request.agentFile, options: ['bind', 'ro', 'nosuid', 'nodev'] },
    ],
    linux: {
      namespaces: [
        { type: 'pid' },
        { type: 'ipc' },
        { type: 'uts' },
        { type: 'mount' },
        { type: 'network', path: request.netnsFile },
      ],
    },
  };
}
