import { runCommand } from '../core/command.ts';

/** What a runsc can do. Probed from what it says of itself, never guessed from a version. */
export interface RunscFeatures {
  /** `runsc tar rootfs-upper`: the changes of the root overlay as an archive. */
  tarRootfsUpper: boolean;
  /** Such an archive can be given back at boot, by annotation. */
  rootfsTarAnnotation: boolean;
  /** `runsc fscheckpoint`: snapshots of the file systems alone. */
  fsCheckpoint: boolean;
  /** `--overlay2=…,size=`: the root overlay shows and keeps a size limit. */
  overlaySize: boolean;
  /** `restore --background`: pages are loaded after the sandbox runs again. */
  backgroundRestore: boolean;
  /** `checkpoint --exclude-committed-zero-pages`. */
  excludeZeroPages: boolean;
  /** `checkpoint --direct` and `restore --direct`: O_DIRECT for the pages. */
  directImages: boolean;
  /** `--net-disconnect-ok`: open connections do not make a checkpoint fail. */
  netDisconnectOk: boolean;
  /** `--allow-connected-on-save`: connections may stay established across a checkpoint. */
  allowConnectedOnSave: boolean;
  /** `--allow-suid`: set-uid programs work where the flag is given. Older ones always allow them. */
  allowSuid: boolean;
}

/** Without these a pause cannot keep a sandbox's files apart from its memory: older than what we want to run. */
export function isRecent(features: RunscFeatures): boolean {
  return features.tarRootfsUpper && features.rootfsTarAnnotation && features.fsCheckpoint;
}

export async function probeRunsc(runsc: string): Promise<RunscFeatures> {
  // `help` exits with a usage status in some versions; the text is what counts.
  const ask = async (...args: string[]) => {
    const { stdout, stderr } = await runCommand(runsc, args, { timeoutMs: 10_000, okStatuses: [0, 1, 2, 64, 128] });
    return stdout + stderr;
  };
  const [subcommands, flags, tar, checkpoint, restore] = await Promise.all([
    ask('help'),
    ask('flags'),
    ask('help', 'tar'),
    ask('help', 'checkpoint'),
    ask('help', 'restore'),
  ]);
  return readFeatures({ subcommands, flags, tar, checkpoint, restore });
}

/** The texts of `runsc help`, `runsc flags` and `runsc help <subcommand>`. */
export interface RunscHelp {
  subcommands: string;
  flags: string;
  tar: string;
  checkpoint: string;
  restore: string;
}

export function readFeatures(help: RunscHelp): RunscFeatures {
  const hasCommand = (text: string, name: string) => new RegExp(`^\\s+${name}\\s`, 'm').test(text);
  const hasFlag = (text: string, name: string) => new RegExp(`^\\s+-${name}\\b`, 'm').test(text);
  return {
    tarRootfsUpper: hasCommand(help.subcommands, 'tar') && hasCommand(help.tar, 'rootfs-upper'),
    rootfsTarAnnotation: hasFlag(help.flags, 'allow-rootfs-tar-annotation'),
    fsCheckpoint: hasCommand(help.subcommands, 'fscheckpoint'),
    overlaySize: /size=\{size\}/.test(help.flags),
    backgroundRestore: hasFlag(help.restore, 'background'),
    excludeZeroPages: hasFlag(help.checkpoint, 'exclude-committed-zero-pages'),
    directImages: hasFlag(help.checkpoint, 'direct') && hasFlag(help.restore, 'direct'),
    netDisconnectOk: hasFlag(help.flags, 'net-disconnect-ok'),
    allowConnectedOnSave: hasFlag(help.flags, 'allow-connected-on-save'),
    allowSuid: hasFlag(help.flags, 'allow-suid'),
  };
}
