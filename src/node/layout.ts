import { createHash } from 'node:crypto';
import path from 'node:path';

/** Where things lie under the state directory, and the names this service uses outside of it. */
export class Layout {
  readonly stateDir: string;
  /**
   * Five characters that belong to this state directory alone. They stand in every name the service gives to something of the
   * machine (interfaces, namespaces, nft tables, control groups), so that two services on one machine never touch each other's.
   */
  readonly scope: string;

  constructor(stateDir: string) {
    this.stateDir = stateDir;
    this.scope = createHash('sha256').update(stateDir).digest('hex').slice(0, 5);
  }

  get layersDir(): string {
    return path.join(this.stateDir, 'layers');
  }

  layerDir(layer: string): string {
    return path.join(this.layersDir, layer, 'rootfs');
  }

  get mergedDir(): string {
    return path.join(this.stateDir, 'merged');
  }

  get disksDir(): string {
    return path.join(this.stateDir, 'disks');
  }

  /** Files shown to containers in place of the machine's own. */
  get procFilesDir(): string {
    return path.join(this.stateDir, 'proc-files');
  }

  get sandboxesDir(): string {
    return path.join(this.stateDir, 'sandboxes');
  }

  sandboxDir(sandboxId: string): string {
    return path.join(this.sandboxesDir, sandboxId);
  }

  get snapshotsDir(): string {
    return path.join(this.stateDir, 'snapshots');
  }

  get networkFile(): string {
    return path.join(this.stateDir, 'network.json');
  }

  /** The authority that sandboxes with header rules trust. */
  get authorityDir(): string {
    return path.join(this.stateDir, 'authority');
  }

  get lockFile(): string {
    return path.join(this.stateDir, 'lock');
  }
}
