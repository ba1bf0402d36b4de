import { createHash } from 'node:crypto';
import { chmod, copyFile, open, readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '../core/command.ts';
import { messageOf, SandbarError } from '../core/errors.ts';
import { ArtifactStore } from './artifact-store.ts';
import { setUpCrates } from './crates.ts';
import { findProgram } from './find-program.ts';
import type { Progress } from './progress.ts';

const ROOT = path.join(import.meta.dirname, '../..');

/** A Rust program of this project: its crate is the directory of that name. */
interface Program {
  crate: string;
  name: string;
  /** Must run in any root file system, whatever C library that has. */
  static: boolean;
}

export const programs = {
  agent: { crate: 'agent', name: 'sandbar-agent', static: true },
  host: { crate: 'host', name: 'sandbar-host', static: false },
} as const satisfies Record<string, Program>;

/** What of a crate decides about the outcome. */
const SOURCES = /^(Cargo\.(toml|lock)|build\.rs|rust-toolchain(\.toml)?|\.cargo\/.*|src\/.*)$/;

/** Compiles the programs, except where these very sources were compiled before. */
export async function setUpPrograms(cacheDir: string, progress: Progress): Promise<void> {
  const cargo = findProgram('cargo');
  if (cargo === undefined) throw new SandbarError('failed_precondition', 'cargo is not installed');
  await setUpCrates(ROOT, cargo);
  for (const program of Object.values(programs)) await setUpProgram(cacheDir, program, cargo, progress);
}

async function setUpProgram(cacheDir: string, program: Program, cargo: string, progress: Progress): Promise<void> {
  const store = new ArtifactStore(cacheDir, program.crate);
  await store.removeLeftovers();
  const crate = path.join(ROOT, program.crate);
  const key = await sourceHash(crate);
  if (store.has(key)) {
    if (store.current() !== path.join(store.directory, key)) await store.select(key);
    return;
  }
  await progress.during(`Compiling ${program.name} with cargo`, (say) =>
    store.add(key, async (directory) => {
      const file = (await compile(cargo, crate, say)).get(program.name);
      if (file === undefined) throw new SandbarError('internal', `cargo made no program ${program.name}`);
      if (program.static && (await needsLoader(file)))
        throw new SandbarError(
          'internal',
          `${program.name} was linked dynamically: it would not start in every template`,
        );
      await copyFile(file, path.join(directory, program.name));
      await chmod(path.join(directory, program.name), 0o755);
    }),
  );
}

/** Runs cargo; gives the programs it made, by name. */
async function compile(cargo: string, crate: string, say: (text: string) => void): Promise<Map<string, string>> {
  const built = new Map<string, string>();
  const args = ['build', '--release', '--locked', '--message-format=json-render-diagnostics'];
  try {
    await runCommand(cargo, args, {
      cwd: crate,
      timeoutMs: 1_200_000,
      onLine: (line) => {
        const compiling = /^\s*(Compiling|Downloading|Downloaded) .*/.exec(line)?.[0];
        if (compiling !== undefined) say(compiling.trim());
        if (!line.startsWith('{')) return;
        const message = JSON.parse(line) as { target?: { name: string }; executable?: string | null };
        if (message.executable && message.target) built.set(message.target.name, message.executable);
      },
    });
  } catch (error) {
    throw new SandbarError('failed_precondition', `cargo could not build ${crate}: ${cargoReason(error)}`, {
      cause: error,
    });
  }
  return built;
}

function cargoReason(error: unknown): string {
  const lines = messageOf(error)
    .split('\n')
    .map((line) => line.trim());
  const first = lines.find((line) => /^error/.test(line)) ?? lines.at(-1) ?? '';
  const network = lines.find((line) =>
    /could ?n.t (resolve|connect)|network failure|failed to (download|fetch|get)/i.test(line),
  );
  return (network ?? first).slice(0, 300);
}

export async function sourceHash(crate: string): Promise<string> {
  const hash = createHash('sha256').update(`${process.arch}\n`);
  const files = (await readdir(crate, { recursive: true, withFileTypes: true }).catch(() => []))
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(crate, path.join(entry.parentPath, entry.name)))
    .filter((file) => SOURCES.test(file))
    .sort();
  if (!files.includes('Cargo.toml')) throw new SandbarError('failed_precondition', `${crate} holds no Cargo.toml`);
  for (const file of files)
    hash
      .update(`${file}\0`)
      .update(await readFile(path.join(crate, file)))
      .update('\0');
  return hash.digest('hex').slice(0, 16);
}

/** Whether an ELF program asks for a dynamic loader (a PT_INTERP header): a static one does not. */
async function needsLoader(file: string): Promise<boolean> {
  const PT_INTERP = 3;
  const handle = await open(file);
  try {
    const header = Buffer.alloc(4096);
    await handle.read(header, 0, header.length, 0);
    const tableAt = Number(header.readBigUInt64LE(32));
    const entrySize = header.readUInt16LE(54);
    const entries = header.readUInt16LE(56);
    return Array.from({ length: entries }, (_, index) => header.readUInt32LE(tableAt + index * entrySize)).includes(
      PT_INTERP,
    );
  } finally {
    await handle.close();
  }
}
