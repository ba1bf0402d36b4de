import { SandbarError } from '../core/errors.ts';
import { NewNetwork, type NewSandbox } from './sandbox-schemas.ts';

/**
 * Options the protocol has and the service has not yet. They are refused rather than ignored: a sandbox that runs without the
 * rule its maker asked for is worse than none. A line goes when its option works.
 */
const notYet: { option: string; isUsed: (body: NewSandbox) => boolean }[] = [
  { option: 'volumeMounts', isUsed: (body) => isFilled(body.volumeMounts) },
  { option: 'iam', isUsed: (body) => isFilled(body.iam?.tokens) },
];

export function refuseNotYet(body: NewSandbox): void {
  const used = notYet.find(({ isUsed }) => isUsed(body));
  if (used !== undefined) throw new SandbarError('invalid', `${used.option} is not supported by this server yet`);
}

/**
 * Clients may be newer than this server. A field it does not know is passed over, as the protocol has it, but not in the network
 * object: there it may be a rule that keeps something in or out.
 */
export function refuseUnknownNetworkFields(network: object): void {
  refuseUnknownFields(network, NewNetwork.properties);
}

export function refuseUnknownFields(network: object, known: object): void {
  const unknown = Object.keys(network).find((field) => !(field in known));
  if (unknown !== undefined) throw new SandbarError('invalid', `network.${unknown} is not supported by this server`);
}

function isFilled(value: object | undefined): boolean {
  return value !== undefined && Object.keys(value).length > 0;
}
