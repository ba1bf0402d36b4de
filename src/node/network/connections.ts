import type { HostHelper } from '../host-helper.ts';
import type { CompiledPolicy } from './policy.ts';

type Helper = Pick<HostHelper, 'run'>;

/** A connection or UDP flow that a sandbox began, as the kernel tracks it. */
interface TrackedFlow {
  protocol: string;
  /** Address it was meant for. */
  destination: string;
  /** Address that answers it: another than the destination where it was turned to the resolver or the egress proxy. */
  answeringFrom: string;
}

/** Destinations whose connections are forgotten one by one; more are left to run out, with the fence closed to them. */
const MOST_CUTS = 256;
const CUTS_AT_ONCE = 8;
const PROTOCOLS = new Set(['tcp', 'udp', 'icmp']);

/**
 * Makes the kernel forget flows of a sandbox that its policy does not allow (any more); the fence stops their packets already. Datagrams at
 * once, so that the next finds its way anew. Connections a moment later: until then what the other end sends still arrives, the answer of the
 * sandbox is met by a reset, and so it learns of the end; then the other end does, since the machine knows nothing of the connection.
 */
export async function cutForbidden(
  helper: Helper,
  guest: string,
  policy: CompiledPolicy,
  which: 'datagrams' | 'connections',
): Promise<void> {
  const flows = (await trackedFlows(helper, guest)).filter(
    (flow) => (flow.protocol === 'tcp') === (which === 'connections') && isForbidden(flow, policy),
  );
  // Flows to one destination that were turned and that were not are told apart: one kind may be allowed and the other not.
  const filters = [
    ...new Set(flows.map((flow) => [flow.protocol, flow.destination, flow.answeringFrom].join(' '))),
  ].slice(0, MOST_CUTS);
  const lanes = Array.from({ length: CUTS_AT_ONCE }, async (_, lane) => {
    for (let index = lane; index < filters.length; index += CUTS_AT_ONCE) {
      const [protocol = '', destination = '', answeringFrom = ''] = filters[index]?.split(' ') ?? [];
      await conntrack(helper, '-D', '-s', guest, '-d', destination, '-r', answeringFrom, '-p', protocol);
    }
  });
  await Promise.all(lanes);
}

function isForbidden(flow: TrackedFlow, policy: CompiledPolicy): boolean {
  // A question to a name server: the next one finds its way anew. What went to the egress proxy, that cuts itself.
  if (flow.answeringFrom !== flow.destination) return flow.protocol === 'udp';
  if (flow.protocol === 'tcp' && policy.passage === 'proxied') return true;
  return !policy.permitsAddress(flow.destination);
}

async function trackedFlows(helper: Helper, guest: string): Promise<TrackedFlow[]> {
  const { stdout } = await conntrack(helper, '-L', '-s', guest);
  return stdout.split('\n').flatMap((line) => {
    const [protocol = ''] = line.split(/\s+/, 1);
    const values = (name: string) => [...line.matchAll(new RegExp(`\\b${name}=(\\S+)`, 'g'))].map((match) => match[1]);
    const [, answeringFrom] = values('src');
    const [destination] = values('dst');
    if (!PROTOCOLS.has(protocol) || destination === undefined || answeringFrom === undefined) return [];
    return [{ protocol, destination, answeringFrom }];
  });
}

/** Status 1: nothing matched. */
function conntrack(helper: Helper, ...args: string[]) {
  return helper.run('conntrack', args, { okStatuses: [0, 1] });
}
