import { type Static, Type } from 'typebox';
import type { NetworkRule } from '../sandboxes/network-config.ts';
import { DateTime, INT32_MAX, NullableString, OneOf, StringMap } from './typebox-provider.ts';

// The wire types of the sandbox endpoints: handlers, validation and the OpenAPI document all follow from these.

export const V1_TIMEOUT_SECONDS = 15;
export const V2_TIMEOUT_SECONDS = 300;

/** Seconds; checked against the service's longest life by the handlers. */
const Seconds = (fallback?: number) =>
  Type.Integer({ minimum: 0, maximum: INT32_MAX, ...(fallback !== undefined && { default: fallback }) });

const State = OneOf(['running', 'paused'], { title: 'SandboxState' });

const VolumeMount = Type.Object({ name: Type.String(), path: Type.String() });

const rules = Type.Unsafe<Record<string, NetworkRule[]>>({
  type: 'object',
  description: 'Headers to set on requests to a domain',
  additionalProperties: {
    type: 'array',
    items: Type.Object({ transform: Type.Optional(Type.Object({ headers: Type.Optional(StringMap) })) }),
  },
});

const EgressProxy = Type.Object({
  address: Type.String({ description: 'host:port of a SOCKS5 server' }),
  username: Type.Optional(Type.String()),
  password: Type.Optional(Type.String()),
});

/** What is about the way out, and may be changed while a sandbox runs. */
export const egressFields = {
  allowOut: Type.Optional(Type.Array(Type.String())),
  denyOut: Type.Optional(Type.Array(Type.String())),
  rules: Type.Optional(rules),
  egressProxy: Type.Optional(Type.Union([EgressProxy, Type.Null()])),
};

const networkFields = {
  ...egressFields,
  allowPublicTraffic: Type.Optional(Type.Boolean()),
  maskRequestHost: Type.Optional(Type.String()),
  httpsPorts: Type.Optional(Type.Array(Type.Integer())),
};

export const NewNetwork = Type.Object(
  {
    ...networkFields,
    allowPublicTraffic: Type.Optional(
      Type.Unsafe<boolean | null>({ type: ['boolean', 'null'], description: 'null is the default, true' }),
    ),
  },
  { title: 'SandboxNetworkConfig' },
);

/** As reported: an egress proxy's password never comes back. */
const ReportedNetwork = Type.Object({
  ...networkFields,
  egressProxy: Type.Optional(Type.Union([Type.Omit(EgressProxy, ['password']), Type.Null()])),
});

const newSandboxFields = {
  templateID: Type.String({ description: 'Template ID or [namespace/]name, with :tag where wanted' }),
  autoPause: Type.Optional(Type.Boolean({ default: false, description: 'Pause at the deadline instead of kill' })),
  autoPauseMemory: Type.Optional(Type.Boolean({ default: true })),
  autoResume: Type.Optional(Type.Object({ enabled: Type.Boolean() })),
  allow_internet_access: Type.Optional(Type.Boolean()),
  network: Type.Optional(NewNetwork),
  metadata: Type.Optional(StringMap),
  envVars: Type.Optional(StringMap),
  mcp: Type.Optional(Type.Unsafe<object | null>({ type: ['object', 'null'], description: 'Not read by the service' })),
  iam: Type.Optional(Type.Object({ tokens: Type.Optional(Type.Unsafe<object>({ type: 'object' })) })),
  volumeMounts: Type.Optional(Type.Array(VolumeMount)),
};

export const NewSandboxV1 = Type.Object(
  {
    ...newSandboxFields,
    timeout: Type.Optional(Seconds(V1_TIMEOUT_SECONDS)),
    secure: Type.Optional(Type.Boolean({ default: false, description: 'Demand an access token inside the sandbox' })),
  },
  { title: 'NewSandbox' },
);

/** Always secure. */
export const NewSandboxV2 = Type.Object(
  { ...newSandboxFields, timeout: Type.Optional(Seconds(V2_TIMEOUT_SECONDS)) },
  { title: 'NewSandboxV2' },
);

export type NewSandbox = Static<typeof NewSandboxV1>;

/** Answer of create and connect. */
export const Sandbox = Type.Object(
  {
    templateID: Type.String(),
    sandboxID: Type.String(),
    clientID: Type.String({ deprecated: true }),
    envdVersion: Type.String(),
    alias: Type.Optional(Type.String()),
    envdAccessToken: NullableString,
    trafficAccessToken: NullableString,
    domain: Type.Unsafe<string | null>({ type: ['string', 'null'], deprecated: true, description: 'Always null' }),
  },
  { title: 'Sandbox' },
);

const listedFields = {
  templateID: Type.String(),
  sandboxID: Type.String(),
  clientID: Type.String({ deprecated: true }),
  startedAt: DateTime,
  endAt: DateTime,
  cpuCount: Type.Integer({ minimum: 1 }),
  memoryMB: Type.Integer({ minimum: 128 }),
  diskSizeMB: Type.Integer({ minimum: 0 }),
  state: State,
  envdVersion: Type.String(),
  alias: Type.Optional(Type.String()),
  metadata: Type.Optional(StringMap),
  volumeMounts: Type.Optional(Type.Array(VolumeMount)),
};

export const ListedSandbox = Type.Object(listedFields, { title: 'ListedSandbox' });

export const SandboxDetail = Type.Object(
  {
    ...listedFields,
    envdAccessToken: NullableString,
    allowInternetAccess: Type.Unsafe<boolean | null>({ type: ['boolean', 'null'] }),
    domain: Type.Unsafe<string | null>({ type: ['string', 'null'], deprecated: true, description: 'Always null' }),
    network: Type.Optional(ReportedNetwork),
    lifecycle: Type.Object({
      autoResume: Type.Boolean(),
      onTimeout: OneOf(['kill', 'pause']),
    }),
    pauseMode: Type.Optional(
      OneOf(['full', 'filesystem'], { description: 'What the pause saved; absent while it does not stand still' }),
    ),
  },
  { title: 'SandboxDetail' },
);

export const SandboxParams = Type.Object({ sandboxID: Type.String() });

export const ListQueryV1 = Type.Object({ metadata: Type.Optional(Type.String()) });

export const ListQueryV2 = Type.Object({
  metadata: Type.Optional(Type.String({ description: 'key=value pairs joined by &, keys and values URL encoded' })),
  state: Type.Optional(Type.Array(State)),
  order: Type.Optional(OneOf(['asc', 'desc'], { default: 'desc' })),
  startedAfter: Type.Optional(DateTime),
  template: Type.Optional(Type.String({ description: 'Template ID or name, without a tag' })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: 100 })),
  nextToken: Type.Optional(Type.String()),
});

export const ConnectV1 = Type.Object({ timeout: Seconds(), memory: Type.Optional(Type.Boolean({ default: true })) });

export const ConnectV2 = Type.Object({
  timeout: Type.Optional(Seconds(V2_TIMEOUT_SECONDS)),
  memory: Type.Optional(Type.Boolean({ default: true })),
});

export const TimeoutBody = Type.Object({ timeout: Seconds() });

export const RefreshBody = Type.Object({ duration: Type.Optional(Type.Integer({ minimum: 0, maximum: 3600 })) });
