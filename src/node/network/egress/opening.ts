import type { Socket } from 'node:net';
import { canonicalName } from '../policy.ts';
import { type Reading, serverNameIn } from './client-hello.ts';
import { hostIn } from './http-host.ts';

/** How a connection begins, as far as that tells whom it is for. */
export interface Opening {
  kind: 'tls' | 'http' | 'other' | 'silent';
  /** The name it asks for: lower case, a name of DNS; undefined where it names none. */
  name: string | undefined;
  /** What was read, to be sent on. */
  head: Buffer;
}

/** More than any client's hello or request head. */
const MAX_HEAD_BYTES = 65_536;
const HANDSHAKE_RECORD = 22;

/** Reads a connection's first bytes until they tell what it is; `silent` when none came within `quietMs`, or too few within `patienceMs`. */
export function readOpening(
  socket: Socket,
  { quietMs, patienceMs }: { quietMs: number; patienceMs: number },
): Promise<Opening> {
  return new Promise((resolve, reject) => {
    let head: Buffer = Buffer.alloc(0);
    const settle = (opening: Omit<Opening, 'head'>) => {
      clearTimeout(timer);
      socket.pause();
      socket.off('data', onData);
      socket.off('end', onEnd);
      socket.off('close', onClose);
      resolve({ ...opening, head });
    };
    const onData = (chunk: Buffer) => {
      if (head.length === 0) {
        clearTimeout(timer);
        timer = setTimeout(giveUp, patienceMs);
      }
      head = Buffer.concat([head, chunk]);
      const opening = openingIn(head);
      if (opening !== undefined) settle(opening);
      else if (head.length > MAX_HEAD_BYTES) settle({ kind: 'other', name: undefined });
    };
    const giveUp = () => settle({ kind: head.length === 0 ? 'silent' : 'other', name: undefined });
    // It says nothing more: what it said so far is all there is.
    const onEnd = giveUp;
    const onClose = () => {
      clearTimeout(timer);
      reject(new Error('closed before it began'));
    };
    let timer = setTimeout(giveUp, quietMs);
    socket.on('data', onData);
    socket.on('end', onEnd);
    socket.on('close', onClose);
    socket.resume();
  });
}

/** What the first bytes of a connection tell; undefined while more are needed. */
export function openingIn(head: Buffer): Omit<Opening, 'head'> | undefined {
  const kind = head[0] === HANDSHAKE_RECORD ? 'tls' : 'http';
  const reading: Reading<string | undefined> = kind === 'tls' ? serverNameIn(head) : hostIn(head);
  if (reading.state === 'more') return undefined;
  if (reading.state === 'malformed') return { kind: 'other', name: undefined };
  return { kind, name: dnsName(reading.value) };
}

/** A name that DNS can have; an address is none. */
function dnsName(text: string | undefined): string | undefined {
  const name = canonicalName(text ?? '');
  const labels = name.split('.');
  const isName = name.length <= 253 && labels.every((label) => /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label));
  return isName && !/^\d+$/.test(labels.at(-1) ?? '') ? name : undefined;
}
