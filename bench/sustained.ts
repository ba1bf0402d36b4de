import { countLeftovers } from '../tests/support/leftovers.ts';
import type { TestService } from '../tests/support/service.ts';
import { createAndRun } from './create.ts';
import { WHAT } from './names.ts';
import { pssMb, serviceProcesses } from './processes.ts';
import type { Row } from './report.ts';
import { Timings } from './statistics.ts';

const AT_A_TIME = 4;

/** Create → command → kill as fast as it goes for a while, and what stays behind. The service has stopped afterwards. */
export async function measureSustained(service: TestService, where: string, seconds: number): Promise<Row[]> {
  const ownMb = () => pssMb(serviceProcesses(service.stateDir, service.pid));
  await createAndRun(service, 'true');
  const before = ownMb();
  const timings = new Timings();
  const started = Date.now();
  await Promise.all(
    Array.from({ length: AT_A_TIME }, async () => {
      while (Date.now() < started + seconds * 1000) await timings.add(() => createAndRun(service, 'true'));
    }),
  );
  const { tally } = timings;
  const rate = tally.samples / ((Date.now() - started) / 1000);
  const after = ownMb();
  await service.stop();
  const leftovers = Object.entries(await countLeftovers(service.stateDir)).filter(([, count]) => count > 0);
  return [
    {
      what: WHAT.sustained,
      where,
      figure: { value: rate, unit: '/s', ...tally },
      note: `${seconds} s, ${AT_A_TIME} at a time`,
    },
    {
      what: "growth of the service's memory",
      where,
      figure: { value: after - before, unit: 'MB', samples: 1, failures: 0 },
      note: `${before.toFixed(0)} MB before, ${after.toFixed(0)} MB after ${tally.samples} sandboxes`,
    },
    {
      what: 'left behind on the machine',
      where,
      figure: { value: leftovers.reduce((sum, [, count]) => sum + count, 0), unit: 'things', samples: 1, failures: 0 },
      ...(leftovers.length > 0 && { note: leftovers.map(([kind, count]) => `${count} ${kind}`).join(', ') }),
    },
  ];
}
