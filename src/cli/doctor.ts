import type { Config } from '../core/config.ts';
import { messageOf } from '../core/errors.ts';
import type { Check, Finding } from './doctor-check.ts';
import { diskChecks } from './doctor-disk.ts';
import { hostChecks } from './doctor-host.ts';
import { networkChecks } from './doctor-network.ts';
import { runtimeChecks } from './doctor-runtime.ts';

/** Looks at everything and prints a line each; false when something failed. */
export async function runDoctor(config: Config, print: (line: string) => void = console.log): Promise<boolean> {
  const checks = [...hostChecks(), ...runtimeChecks(config), ...networkChecks(config), ...diskChecks(config)];
  let healthy = true;
  for (const check of checks) {
    const finding = await examine(check);
    if (finding.level === 'fail') healthy = false;
    print(findingLine(check.subject, finding));
  }
  return healthy;
}

export async function examine(check: Check): Promise<Finding> {
  try {
    return await check.look();
  } catch (error) {
    const text = messageOf(error).replaceAll('\n', ' ').slice(0, 200);
    return { level: 'fail', text, mend: check.mend };
  }
}

export function findingLine(subject: string, finding: Finding): string {
  const mend = finding.level === 'ok' ? '' : ` -> ${finding.mend}`;
  return `${finding.level.padEnd(4)}  ${subject.padEnd(13)}  ${finding.text}${mend}`;
}
