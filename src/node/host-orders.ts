/** One thing that the host helper is to do: a verb of host/src/serve.rs and its words. */
export type Order = readonly [verb: string, ...words: string[]];

/** Ids of a user namespace out here. */
export interface IdRange {
  base: number;
  count: number;
}

/** Mounts a directory again as a user namespace of these ids sees it. */
export function idmap(source: string, target: string, ids: IdRange, access: 'ro' | 'rw'): Order {
  return ['idmap', source, target, String(ids.base), String(ids.count), access];
}

/** Mounts an overlay. Where its upper directory is id-mapped, `owner` is the id that may write there. */
export function overlay(target: string, options: string, owner?: number): Order {
  return ['overlay', target, options, ...(owner === undefined ? [] : [String(owner)])];
}

/** Mounts a file that holds an ext4 file system. Unless it is fresh it may still be mounted in some other namespace: that is then shared. */
export function mountImage(file: string, target: string, options: string, { isFresh }: { isFresh: boolean }): Order {
  return [isFresh ? 'loop' : 'loop-again', file, target, options];
}

/** Takes a mount away; what is not mounted is success. */
export function unmount(target: string): Order {
  return ['unmount', target];
}

export function syncFilesystem(directory: string): Order {
  return ['sync', directory];
}

/** Makes a directory and those above it; one that is there is success. */
export function makeDirectory(directory: string): Order {
  return ['make-directory', directory];
}

/** Writes a whole file for its owner alone. */
export function writeFile(file: string, text: string): Order {
  return ['write', file, text];
}

/** Copies a file, its holes kept. */
export function copyFile(source: string, target: string): Order {
  return ['copy', source, target];
}

export function rename(from: string, to: string): Order {
  return ['rename', from, to];
}

/** Removes a file, or a directory with all that is in it; what is not there is success. */
export function remove(file: string): Order {
  return ['remove', file];
}

/** Removes a control group whose processes have ended; what is not there is success. */
export function removeGroup(directory: string): Order {
  return ['remove-group', directory];
}
