import { mkdtempSync, rmSync } from 'node:fs';
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type BuildInfo, type BuildOptions, type LogEntry, Sandbox, Template, type TemplateClass } from 'e2b';
import { afterAll } from 'vitest';
import type { TestService } from '../support/service.ts';

export interface Built {
  info: BuildInfo;
  /** Lines of the log, as the client shows them. */
  lines: string[];
  entries: LogEntry[];
  /** From the request to the end. */
  milliseconds: number;
}

/** Builds a template through the official SDK and gives the log beside the result. */
export async function buildTemplate(
  service: TestService,
  template: TemplateClass,
  name: string,
  options: Omit<BuildOptions, 'alias'> = {},
): Promise<Built> {
  const entries: LogEntry[] = [];
  const began = Date.now();
  const info = await Template.build(template, name, {
    cpuCount: 1,
    memoryMB: 512,
    ...options,
    ...service.connection,
    onBuildLogs: (entry) => entries.push(entry),
  });
  return { info, entries, lines: entries.map(({ message }) => message), milliseconds: Date.now() - began };
}

/** What a build that must fail says. */
export async function failedBuild(
  service: TestService,
  template: TemplateClass,
  name: string,
): Promise<{ message: string; lines: string[] }> {
  const lines: string[] = [];
  try {
    await Template.build(template, name, {
      cpuCount: 1,
      memoryMB: 512,
      ...service.connection,
      onBuildLogs: ({ message }) => lines.push(message),
    });
  } catch (error) {
    return { message: (error as Error).message, lines };
  }
  throw new Error(`the build of ${name} did not fail`);
}

/** Runs a command in a fresh sandbox of a template and gives what it prints. */
export async function runIn(service: TestService, name: string, command: string): Promise<string> {
  const sandbox = await Sandbox.create(name, service.connection);
  try {
    return (await sandbox.commands.run(command)).stdout;
  } finally {
    await sandbox.kill();
  }
}

/** A directory with files for COPY; `-> x` makes a link, a function of mode makes a program. */
export async function contextDirectory(files: Record<string, string>): Promise<string> {
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-context-'));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  for (const [name, content] of Object.entries(files)) {
    const file = path.join(directory, name);
    await mkdir(path.dirname(file), { recursive: true });
    if (content.startsWith('-> ')) await symlink(content.slice(3), file);
    else await writeFile(file, content);
    if (content.startsWith('#!')) await chmod(file, 0o755);
  }
  return directory;
}

/** A call of the control plane with its answer as JSON. */
export async function api(
  service: TestService,
  method: string,
  pathAndQuery: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: unknown; headers: Headers }> {
  const response = await service.fetch(pathAndQuery, {
    method,
    headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === '' ? undefined : JSON.parse(text) };
}

/** The state of a build, when it has ended. */
export async function endOfBuild(
  service: TestService,
  { templateID, buildID }: { templateID: string; buildID: string },
): Promise<{ status: string; reason?: { message: string; step?: string; logEntries: { message: string }[] } }> {
  for (;;) {
    const { body } = await api(service, 'GET', `/templates/${templateID}/builds/${buildID}/status`);
    const state = body as { status: string; reason?: { message: string; step?: string; logEntries: [] } };
    if (state.status === 'ready' || state.status === 'error') return state;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
