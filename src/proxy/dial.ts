import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { SandbarError } from '../core/errors.ts';
import type { DataPlane } from '../node/contract.ts';

/** A program that was just started needs a moment until it listens. */
const ATTEMPTS = 5;
const HANDSHAKE_MS = 10_000;
const waitBetweenMs = (attempt: number) => 100 + attempt * 100;

export interface DialTarget {
  sandboxId: string;
  port: number;
  /** The program speaks TLS; its certificate is its own affair. */
  tls: boolean;
}

/** Nothing listens on the port. */
export class PortNotOpen extends Error {}

/** A connection to a port in a sandbox, tried again while it is refused. Under TLS `protocol` is what will be spoken on it. */
export async function dialPort(
  dataPlane: DataPlane,
  target: DialTarget,
  signal: AbortSignal,
  protocol: 'http/1.1' | 'h2' = 'http/1.1',
): Promise<Duplex> {
  for (let attempt = 0; ; attempt++) {
    try {
      const raw = await dataPlane.dial(target.sandboxId, target.port, signal);
      return target.tls ? await secured(raw, protocol) : raw;
    } catch (error) {
      if (!(error instanceof SandbarError) || error.kind !== 'bad_gateway') throw error;
      if (attempt + 1 >= ATTEMPTS) throw new PortNotOpen(error.message, { cause: error });
      await delay(waitBetweenMs(attempt), undefined, { signal });
    }
  }
}

function secured(raw: Duplex, protocol: string): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ socket: raw, rejectUnauthorized: false, ALPNProtocols: [protocol] });
    const late = setTimeout(() => socket.destroy(new Error('no TLS handshake in time')), HANDSHAKE_MS);
    const settle = () => {
      clearTimeout(late);
      socket.off('error', fail);
      socket.off('close', fail);
    };
    const fail = (error: unknown) => {
      settle();
      raw.destroy();
      reject(error instanceof Error ? error : new Error('closed during the TLS handshake'));
    };
    socket.once('error', fail);
    socket.once('close', fail);
    socket.once('secureConnect', () => {
      settle();
      resolve(socket);
    });
  });
}
