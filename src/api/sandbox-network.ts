import { type Static, Type } from 'typebox';
import type { NetworkChange, Sandboxes } from '../sandboxes/contract.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { failures } from './errors.ts';
import { checkNetwork } from './network-validation.ts';
import { refuseUnknownFields } from './not-yet.ts';
import { optionalBody } from './request-parsing.ts';
import { parseSandboxId } from './sandbox-id.ts';
import { egressFields, SandboxParams } from './sandbox-schemas.ts';
import { type Api, Nothing } from './typebox-provider.ts';

interface Dependencies {
  sandboxes: Pick<Sandboxes, 'setNetwork'>;
  auth: Authentication;
}

const NetworkUpdate = Type.Object(
  { ...egressFields, allow_internet_access: Type.Optional(Type.Boolean()) },
  { title: 'SandboxNetworkUpdateConfig', description: 'Replaces the whole way out: what is left out is cleared' },
);

export function serveSandboxNetwork(app: Api, { sandboxes, auth }: Dependencies): void {
  app.put(
    '/sandboxes/:sandboxID/network',
    {
      onRequest: auth.team,
      preValidation: optionalBody,
      schema: {
        params: SandboxParams,
        body: NetworkUpdate,
        response: { 204: Nothing('In force'), ...failures },
        tags: ['sandboxes'],
        ...byTeam,
        summary: 'Change what a running sandbox may reach',
      },
    },
    async (request, reply) => {
      const id = parseSandboxId(request.params.sandboxID);
      await sandboxes.setNetwork(callerOf(request).team.id, id, changeOf(request.body));
      return reply.code(204).send(undefined);
    },
  );
}

function changeOf(body: Static<typeof NetworkUpdate>): NetworkChange {
  refuseUnknownFields(body, NetworkUpdate.properties);
  const { allow_internet_access: allowInternetAccess = null, ...egress } = body;
  return { egress: checkNetwork(egress, allowInternetAccess === false), allowInternetAccess };
}
