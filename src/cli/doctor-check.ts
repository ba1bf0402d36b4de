/** What one look at the machine gave. Every finding that is not `ok` says how to mend it. */
export type Finding = { level: 'ok'; text: string } | { level: 'warn' | 'fail'; text: string; mend: string };

/** One thing the doctor looks at. Whatever `look` makes to find out, it removes. What it throws is a failure. */
export interface Check {
  subject: string;
  /** The mend where `look` throws. */
  mend: string;
  look(): Promise<Finding>;
}

export const ok = (text: string): Finding => ({ level: 'ok', text });
export const warn = (text: string, mend: string): Finding => ({ level: 'warn', text, mend });
export const fail = (text: string, mend: string): Finding => ({ level: 'fail', text, mend });
