import { type HttpResponse, sendJson, writeHead } from '../core/http.ts';
import type { SandboxRow } from '../sandboxes/contract.ts';
import type { SandboxCall } from './context.ts';

/** What a sandbox uses at present. */
export interface SandboxUsage {
  /** Percent of all its processors together. */
  cpuUsedPct: number;
  memoryTotalBytes: number;
  memoryUsedBytes: number;
  memoryCacheBytes: number;
}

/** GET /health: the sandbox is there. */
export function sendHealth(res: HttpResponse): void {
  writeHead(res, 204, {});
  res.end();
}

/** GET /envs: the environment that every process of the sandbox begins with. */
export function sendEnvs(row: SandboxRow, res: HttpResponse): void {
  sendJson(res, 200, globalEnvironment(row));
}

export function globalEnvironment(row: SandboxRow): Record<string, string> {
  return { ...row.envVars, E2B_SANDBOX: 'true', E2B_SANDBOX_ID: row.id, E2B_TEMPLATE_ID: row.templateId };
}

/** GET /metrics: what the sandbox uses. */
export async function sendMetrics(call: SandboxCall, usage: SandboxUsage, res: HttpResponse): Promise<void> {
  const disk = await call.agent.disk('/', call.gone);
  sendJson(res, 200, {
    ts: Math.floor(Date.now() / 1000),
    cpu_count: call.row.cpuCount,
    cpu_used_pct: usage.cpuUsedPct,
    mem_total_mib: Math.floor(usage.memoryTotalBytes / 1024 / 1024),
    mem_used_mib: Math.floor(usage.memoryUsedBytes / 1024 / 1024),
    mem_total: usage.memoryTotalBytes,
    mem_used: usage.memoryUsedBytes,
    mem_cache: usage.memoryCacheBytes,
    disk_used: disk.usedBytes,
    disk_total: disk.totalBytes,
  });
}

/** Memory as the sandbox itself sees it, where the machine cannot be asked. */
export async function usageFromInside(call: SandboxCall): Promise<SandboxUsage> {
  const meminfo = await readText(call, '/proc/meminfo');
  const kib = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(meminfo)?.[1] ?? 0) * 1024;
  const total = kib('MemTotal');
  const cache = kib('Cached');
  return {
    cpuUsedPct: 0,
    memoryTotalBytes: total,
    memoryCacheBytes: cache,
    memoryUsedBytes: Math.max(0, total - kib('MemFree') - cache - kib('Buffers')),
  };
}

async function readText(call: SandboxCall, path: string): Promise<string> {
  const file = await call.agent.openRead({ user: '', path }, call.gone);
  try {
    const pieces: Buffer[] = [];
    for await (const piece of call.agent.readAt(file.handle, 0, 64 * 1024, call.gone)) pieces.push(piece);
    return Buffer.concat(pieces).toString('utf8');
  } finally {
    await call.agent.closeFile(file.handle);
  }
}
