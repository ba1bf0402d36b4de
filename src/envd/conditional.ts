import type { IncomingHttpHeaders } from 'node:http';
import { headerOf } from '../core/http.ts';

/** What conditions are checked against. */
export interface Validators {
  /** Strong, with its quotes. */
  etag: string;
  /** Seconds since 1970: dates of HTTP know nothing finer. */
  modifiedSeconds: number;
}

export type Verdict = 'send' | 'not-modified' | 'precondition-failed';

const conditionHeaders = ['range', 'if-range', 'if-modified-since', 'if-none-match', 'if-match', 'if-unmodified-since'];

/** Whether a request has a range or a condition, which are about the bytes as they are stored. */
export function asksForStoredBytes(headers: IncomingHttpHeaders): boolean {
  return conditionHeaders.some((name) => headers[name] !== undefined);
}

export function validatorsOf(size: number, mtimeNs: bigint): Validators {
  return {
    etag: `"${mtimeNs.toString(16)}-${size.toString(16)}"`,
    modifiedSeconds: Number(mtimeNs / 1_000_000_000n),
  };
}

/** The conditions of a request, in the order of RFC 9110 §13.2.2. */
export function checkConditions(headers: IncomingHttpHeaders, file: Validators): Verdict {
  const match = headerOf(headers, 'if-match');
  const unmodified = dateOf(headers, 'if-unmodified-since');
  if (match !== undefined) {
    if (!listHas(match, file.etag, false)) return 'precondition-failed';
  } else if (unmodified !== undefined && file.modifiedSeconds > unmodified) return 'precondition-failed';

  const noneMatch = headerOf(headers, 'if-none-match');
  const modified = dateOf(headers, 'if-modified-since');
  if (noneMatch !== undefined) {
    if (listHas(noneMatch, file.etag, true)) return 'not-modified';
  } else if (modified !== undefined && file.modifiedSeconds <= modified) return 'not-modified';
  return 'send';
}

/** Whether the range of a request holds: always without If-Range, else only while the file is the one that is meant. */
export function rangeHolds(headers: IncomingHttpHeaders, file: Validators): boolean {
  const condition = headerOf(headers, 'if-range');
  if (condition === undefined) return true;
  if (condition.startsWith('"')) return condition === file.etag;
  return dateOf(headers, 'if-range') === file.modifiedSeconds;
}

function listHas(list: string, etag: string, weakly: boolean): boolean {
  return list.split(',').some((item) => {
    const tag = item.trim();
    return tag === '*' || tag === etag || (weakly && tag === `W/${etag}`);
  });
}

function dateOf(headers: IncomingHttpHeaders, name: string): number | undefined {
  const milliseconds = Date.parse(headerOf(headers, name) ?? '');
  return Number.isNaN(milliseconds) ? undefined : Math.floor(milliseconds / 1000);
}
