import type { RuntimeName } from '../../core/config.ts';
import type { ControlGroup } from '../cgroup.ts';
import type { RootEdits } from '../disk/root-edits.ts';

export interface BootRequest {
  sandboxId: string;
  /** Directory of the sandbox's own files on this machine; the runtime keeps its part below it. */
  directory: string;
  /** Read-only directories of the template, lowest first. */
  layers: readonly string[];
  cpuCount: number;
  memoryMb: number;
  diskSizeMb: number;
  /** File of the network namespace to live in. */
  netnsFile: string;
  /** First host id of the user namespace, where the runtime uses one. */
  idBase: number;
  group: ControlGroup;
  /** The agent program on this machine. */
  agentFile: string;
  /** Secret that the agent is born with, 64 hex digits. */
  agentSecret: string;
  /** What it comes up from instead of the template alone. */
  from?: BootSource;
}

/** `memory`: goes on where the image was taken. `files`: boots with the files of the image. `disk`: boots on the disk that is in its directory already. */
export type BootSource = { kind: 'memory'; imageDir: string } | { kind: 'files'; imageDir: string } | { kind: 'disk' };

/** What is left to know about a sandbox once it runs. */
export interface Booted {
  /** The process whose end is the end of the sandbox. */
  pid: number;
}

/** A sandbox that is up, as far as a runtime needs to know it. */
export interface RunningSandbox {
  sandboxId: string;
  directory: string;
  group: ControlGroup;
}

/**
 * Isolation of one kind. Killing, limits and usage are the control group's business and the same for all; a runtime knows how to bring a
 * sandbox up, hold it still, write it down, and clear away what it made for it.
 */
export interface Runtime {
  readonly name: RuntimeName;
  /** Whether an image can hold memory. */
  readonly savesMemory: boolean;
  /** Added to the template's memory for the runtime's own needs, in bytes. */
  readonly memoryOverheadBytes: number;
  /** Host processes a sandbox with this many of its own may need. */
  hostPids(guestPids: number): number;
  /** Brings a sandbox up; the agent in it may not listen yet. A failure leaves what `clear` removes. */
  boot(request: BootRequest, signal?: AbortSignal): Promise<Booted>;
  /** Stops a sandbox where it is. One that is held already is success. */
  hold(sandbox: RunningSandbox): Promise<void>;
  /** Lets a held sandbox go on. One that is not held is success. */
  release(sandbox: RunningSandbox): Promise<void>;
  /** Writes the sandbox into an empty directory, whole; it stays as it is, held or running. `memory` only where `savesMemory`. */
  save(sandbox: RunningSandbox, imageDir: string, what: { memory: boolean; files: boolean }): Promise<void>;
  /** Writes what a held sandbox has changed of its root into an empty directory, as a layer. */
  exportChanges(sandbox: RunningSandbox, directory: string, edits: RootEdits, signal?: AbortSignal): Promise<void>;
  /** Removes mounts and state of a sandbox whose processes have ended, and, unless told to keep it, its disk. Safe to repeat. */
  clear(sandboxId: string, directory: string, options?: { keepDisk: boolean }): Promise<void>;
  /** Why a sandbox that ended by itself did so, as far as the runtime's own traces tell. */
  lastWords(directory: string): Promise<string | undefined>;
}
