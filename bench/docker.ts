import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Docker, IMAGE } from './docker-engine.ts';
import { FIRST_COMMAND, TRUE_IN_A_LOGIN_SHELL, WHAT, WHERE } from './names.ts';
import type { Row } from './report.ts';
import { repeat, repeatRate, timed } from './statistics.ts';

export interface DockerSize {
  samples: number;
  /** Size of a large file. */
  megabytes: number;
  outputMb: number;
}

const MIB = 1024 * 1024;
const KEPT = 'sandbar-bench-kept';
const where = WHERE.docker;
/** The engine has no bridge, so that the machine's network stays as it is; it saves Docker the work of making one. */
const ALONE = '--network=none';

/** `docker run`, `docker exec` and `docker cp` of what is measured of ours, from the image of the same files. */
export async function measureDocker(docker: Docker, size: DockerSize): Promise<Row[]> {
  const rows = [await starts(docker, size), await firstCommands(docker, size)];
  await docker.call('run', '--detach', '--name', KEPT, ALONE, IMAGE, 'sleep', 'infinity');
  try {
    rows.push({
      what: WHAT.exec,
      where,
      summary: await repeat(size.samples, async () => {
        return (await timed(() => docker.call('exec', KEPT, ...TRUE_IN_A_LOGIN_SHELL))).ms;
      }),
      note: 'docker exec',
    });
    rows.push(...(await copies(docker, size)));
    const speak = `head -c ${size.outputMb * MIB} /dev/zero | tr '\\0' x`;
    rows.push({
      what: WHAT.output,
      where,
      figure: await repeatRate(3, size.outputMb, () => docker.call('exec', KEPT, 'sh', '-c', speak)),
      note: `docker exec, ${size.outputMb} MB`,
    });
  } finally {
    await docker.call('rm', '--force', KEPT);
  }
  return rows;
}

async function starts(docker: Docker, { samples }: DockerSize): Promise<Row> {
  const summary = await repeat(samples, async () => {
    const { ms, value } = await timed(() => docker.call('run', '--detach', ALONE, IMAGE, 'sleep', 'infinity'));
    await docker.call('rm', '--force', value.stdout.trim());
    return ms;
  });
  return { what: WHAT.create, where, summary, note: `docker run --detach ${ALONE}` };
}

async function firstCommands(docker: Docker, { samples }: DockerSize): Promise<Row> {
  const run = () => docker.call('run', '--rm', ALONE, IMAGE, ...FIRST_COMMAND.split(' '));
  const summary = await repeat(samples, async () => (await timed(run)).ms);
  return { what: WHAT.firstCommand, where, summary, note: `docker run --rm ${ALONE} ${FIRST_COMMAND}` };
}

async function copies(docker: Docker, { samples, megabytes }: DockerSize): Promise<Row[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'sandbar-bench-'));
  const small = path.join(directory, 'small');
  const large = path.join(directory, 'large');
  const back = path.join(directory, 'back');
  try {
    writeFileSync(small, 'x'.repeat(1024));
    const block = randomBytes(MIB);
    for (let written = 0; written < megabytes; written++) writeFileSync(large, block, { flag: 'a' });
    const up = (file: string) => docker.call('cp', file, `${KEPT}:${path.join('/tmp', path.basename(file))}`);
    const down = (file: string) => docker.call('cp', `${KEPT}:${path.join('/tmp', path.basename(file))}`, back);
    const note = 'docker cp';
    const largeNote = `${note}, ${megabytes} MB`;
    const summary = (work: () => Promise<unknown>) => repeat(samples, async () => (await timed(work)).ms);
    return [
      { what: WHAT.writeSmall, where, summary: await summary(() => up(small)), note },
      { what: WHAT.readSmall, where, summary: await summary(() => down(small)), note },
      { what: WHAT.upload, where, figure: await repeatRate(3, megabytes, () => up(large)), note: largeNote },
      { what: WHAT.download, where, figure: await repeatRate(3, megabytes, () => down(large)), note: largeNote },
    ];
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
