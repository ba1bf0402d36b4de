import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { SandbarError } from '../core/errors.ts';
import type { DataPlane } from '../node/contract.ts';

/** A program that was just started needs a moment until it listens. */
const ATTEMPTS = 5;
const waitBetweenMs = (attempt: number) => 100 + attempt * 100;

export interface DialTarget {
  sandboxId: string;
  port: number;
  /** The program speaks TLS; its certificate is its own affair. */
  tls: boolean;
}

/** Nothing listens on the port. */
export class PortNotOpen extends Error {}

/** A connection to a port in a sandbox, tried again while it is refused. */
export async function dialPort(dataPlane: DataPlane, target: DialTarget, signal: AbortSignal): Promise<Duplex> {
  for (let attempt = 0; ; attempt++) {
    try {
      const raw = await dataPlane.dial(target.sandboxId, target.port, signal);
      return target.tls ? await secured(raw) : raw;
    } catch (error) {
      if (!(error instanceof SandbarError) || error.kind !== 'bad_gateway') throw error;
      if (attempt + 1 >= ATTEMPTS) throw new PortNotOpen(error.message, { cause: error });
      await delay(waitBetweenMs(attempt), undefined, { signal });
    }
  }
}

function secured(raw: Duplex): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ socket: raw, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
    socket.once('error', reject);
    socket.once('secureConnect', () => {
      socket.off('error', reject);
      resolve(socket);
    });
  });
}
