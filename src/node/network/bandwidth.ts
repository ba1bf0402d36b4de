import type { HostHelper } from '../host-helper.ts';

/** The two ends of a slot's cable. */
export interface Cable {
  netns: string;
  /** Out here; in the namespace it is eth0. */
  interfaceName: string;
  /** The service's own address on it. */
  host: string;
}

/** Packets wait, up to so many bytes, before they are dropped; one may be as large as 64 kB on its way through the machine. */
const QUEUE_BYTES = 1024 * 1024;
const BURST_BYTES = 256 * 1024;

/**
 * Limits what a sandbox sends and receives, each way, by letting packets wait in the kernel. What passes between it and the service does not count:
 * files and ports are the operator's own traffic.
 */
export async function limitBandwidth(
  helper: Pick<HostHelper, 'run'>,
  { netns, interfaceName, host }: Cable,
  bytesPerSecond: number,
): Promise<void> {
  await Promise.all([
    helper.run('tc', ['-batch', '-'], { input: rulesFor(interfaceName, `src ${host}/32`, bytesPerSecond) }),
    helper.run('tc', ['-n', netns, '-batch', '-'], { input: rulesFor('eth0', `dst ${host}/32`, bytesPerSecond) }),
  ]);
}

/** An own class for the service's packets, and one with the limit for all others. */
function rulesFor(device: string, ofService: string, bytesPerSecond: number): string {
  return `qdisc add dev ${device} root handle 1: htb default 2
class add dev ${device} parent 1: classid 1:1 htb rate 100gbit quantum 65536
class add dev ${device} parent 1: classid 1:2 htb rate ${bytesPerSecond}bps burst ${BURST_BYTES} quantum 65536
qdisc add dev ${device} parent 1:2 handle 2: bfifo limit ${QUEUE_BYTES}
filter add dev ${device} parent 1: protocol ip prio 1 u32 match ip ${ofService} flowid 1:1
`;
}
