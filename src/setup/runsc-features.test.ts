import { describe, expect, it } from 'vitest';
import { isRecent, type RunscHelp, readFeatures } from './runsc-features.ts';

const recent: RunscHelp = {
  subcommands:
    '\tcheckpoint       checkpoint current state\n\tfscheckpoint     checkpoint file systems\n\ttar              archives\n',
  flags: [
    '  -allow-rootfs-tar-annotation\n    \tallows it',
    '  -allow-suid\n',
    '  -net-disconnect-ok\n',
    '  -overlay2 value\n    \t* {mount}:{medium}[,size={size}], where',
  ].join('\n'),
  tar: '\trootfs-upper     extracts the upper layer\n',
  checkpoint: '  -direct\n  -exclude-committed-zero-pages\n',
  restore: '  -background\n  -direct\n',
};
const old: RunscHelp = {
  subcommands: '\tcheckpoint       checkpoint current state\n\tstart            start, e.g. after tar xf\n',
  flags: '  -overlay2 value\n    \twrap mounts with overlayfs\n',
  tar: 'Subcommand tar not understood.\n',
  checkpoint: '  -image-path string\n',
  restore: '  -detach\n',
};

describe('features of runsc', () => {
  it('are read from its help', () => {
    expect(readFeatures(recent)).toEqual({
      tarRootfsUpper: true,
      rootfsTarAnnotation: true,
      fsCheckpoint: true,
      overlaySize: true,
      backgroundRestore: true,
      excludeZeroPages: true,
      directImages: true,
      netDisconnectOk: true,
      allowConnectedOnSave: false,
      allowSuid: true,
    });
    expect(isRecent(readFeatures(recent))).toBe(true);
  });

  it('are absent where the help does not name them', () => {
    expect(Object.values(readFeatures(old))).not.toContain(true);
    expect(isRecent(readFeatures(old))).toBe(false);
  });
});
