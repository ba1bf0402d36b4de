import type { Agent, AgentConfiguration } from '../agent/contract.ts';
import { AgentError } from '../agent/errors.ts';
import { markFiles } from './guest-marks.ts';
import type { SandboxRecord } from './record.ts';

/** Where a distribution's tools look for certificates that the administrator adds. */
const CERTIFICATE_FILE = '/usr/local/share/ca-certificates/sandbar-egress.crt';
/** The one file that most programs read, of Debian, Ubuntu and Alpine, and of Fedora. */
const BUNDLES = ['/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt'] as const;
const READ_BYTES = 4 * 1024 * 1024;

/** Whether programs in a sandbox meet certificates of the service's own authority. */
export function needsTrust(record: Pick<SandboxRecord, 'network'>): boolean {
  return Object.keys(record.network?.rules ?? {}).length > 0;
}

/** What is set inside, with what tells programs that bring their own list of authorities to read the system's. */
export function guestSettings(record: Pick<SandboxRecord, 'network' | 'guest'>): AgentConfiguration {
  const { env, defaultUser, defaultWorkdir } = record.guest;
  const trust = {
    NODE_EXTRA_CA_CERTS: CERTIFICATE_FILE,
    REQUESTS_CA_BUNDLE: BUNDLES[0],
    SSL_CERT_FILE: BUNDLES[0],
  };
  return { env: needsTrust(record) ? { ...trust, ...env } : env, defaultUser, defaultWorkdir, files: markFiles(env) };
}

/** Makes the programs of a sandbox trust an authority: adds its certificate to the lists of the system, where it is not yet. */
export async function trustInside(agent: Agent, certificate: string, signal?: AbortSignal): Promise<void> {
  const data = Buffer.from(certificate);
  await agent.configure({ files: [{ path: CERTIFICATE_FILE, data, mode: 0o644 }] }, signal);
  const present: string[] = [];
  for (const bundle of BUNDLES) {
    const text = await readText(agent, bundle, signal);
    if (text === undefined) continue;
    present.push(bundle);
    if (!text.includes(certificate.trim()))
      await append(agent, bundle, Buffer.byteLength(text, 'latin1'), data, signal);
  }
  if (present.length === 0) await agent.configure({ files: [{ path: BUNDLES[0], data, mode: 0o644 }] }, signal);
}

/** A file's bytes as text; undefined when there is no such file. */
async function readText(agent: Agent, path: string, signal?: AbortSignal): Promise<string | undefined> {
  try {
    const { handle, size } = await agent.openRead({ user: 'root', path }, signal);
    try {
      const pieces: Buffer[] = [];
      for await (const piece of agent.readAt(handle, 0, Math.min(size, READ_BYTES), signal)) pieces.push(piece);
      return Buffer.concat(pieces).toString('latin1');
    } finally {
      await agent.closeFile(handle);
    }
  } catch (error) {
    if (error instanceof AgentError && error.code === 'NOT_FOUND') return undefined;
    throw error;
  }
}

async function append(agent: Agent, path: string, at: number, data: Buffer, signal?: AbortSignal): Promise<void> {
  const { handle } = await agent.openWrite({ user: 'root', path, truncate: false, metadata: {} }, signal);
  await agent.writeAt(handle, at, [Buffer.from('\n'), data], signal);
  await agent.closeFile(handle);
}
