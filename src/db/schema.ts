import type { SandboxRow } from '../sandboxes/contract.ts';
import { columnCodec, type Stored } from './columns.ts';

/** The tables by name, columns in camelCase (a plugin turns them to snake_case). */
export interface Schema {
  teams: TeamRow;
  users: UserRow;
  teamMembers: TeamMemberRow;
  apiKeys: Stored<ApiKeyRow, never, 'mask'>;
  accessTokens: Stored<AccessTokenRow, never, 'mask'>;
  sandboxes: Stored<SandboxRow, SandboxFlag, SandboxJson>;
  sandboxMetadata: SandboxMetadataRow;
  templates: Stored<TemplateRow, 'public', never>;
  templateAliases: TemplateAliasRow;
  templateTags: TemplateTagRow;
  templateBuilds: Stored<TemplateBuildRow, never, 'layers' | 'env' | 'reason'>;
  buildRequests: Stored<BuildRequestRow, never, 'tags'>;
  buildLogs: BuildLogRow;
  buildCache: Stored<BuildCacheRow, never, 'layers'>;
  sandboxEvents: Stored<SandboxEventRow, never, 'data'>;
  sandboxLogs: Stored<SandboxLogRow, never, 'fields'>;
  metrics: MetricRow;
  secrets: Stored<SecretRow, never, 'metadata'>;
}

// Times in all rows are milliseconds since 1970.

export interface TeamRow {
  id: string;
  name: string;
  /** Namespace of the team's template names. */
  slug: string;
  createdAt: number;
}

export interface UserRow {
  id: string;
  email: string;
  createdAt: number;
}

export interface TeamMemberRow {
  teamId: string;
  userId: string;
  isDefault: number;
}

/** What may be shown of a secret value after it was issued. */
export interface Mask {
  prefix: string;
  valueLength: number;
  maskedValuePrefix: string;
  maskedValueSuffix: string;
}

export interface ApiKeyRow {
  id: string;
  teamId: string;
  name: string;
  hash: string;
  mask: Mask;
  createdAt: number;
  /** User who made it; null for keys of the command line. */
  createdBy: string | null;
  lastUsed: number | null;
}

export interface AccessTokenRow {
  id: string;
  userId: string;
  name: string;
  hash: string;
  mask: Mask;
  createdAt: number;
}

/** One metadata pair of a sandbox, hashed: values have no size limit, index entries do. */
export interface SandboxMetadataRow {
  pairHash: string;
  sandboxId: string;
}

/** A snapshot of a sandbox is a template of its own kind: what lists of templates do not show. */
export type TemplateKind = 'template' | 'snapshot';

export interface TemplateRow {
  id: string;
  kind: TemplateKind;
  /** null for templates that come with the service and belong to everyone. */
  teamId: string | null;
  public: boolean;
  createdAt: number;
  updatedAt: number;
  createdBy: string | null;
  lastSpawnedAt: number | null;
  spawnCount: number;
  buildCount: number;
}

export interface TemplateAliasRow {
  /** Slug of the owning team; empty for global names. */
  namespace: string;
  alias: string;
  templateId: string;
  createdAt: number;
}

export interface TemplateTagRow {
  templateId: string;
  tag: string;
  buildId: string;
  createdAt: number;
}

export type BuildStatus = 'waiting' | 'building' | 'ready' | 'error';

/** Why a build failed. */
export interface BuildReason {
  message: string;
  step?: string;
}

export interface TemplateBuildRow {
  id: string;
  templateId: string;
  status: BuildStatus;
  cpuCount: number;
  memoryMb: number;
  diskSizeMb: number;
  envdVersion: string;
  /** Read-only layers, lowest first. */
  layers: string[];
  startCmd: string | null;
  readyCmd: string | null;
  defaultUser: string;
  defaultWorkdir: string | null;
  env: Record<string, string>;
  /** Snapshot of the running start command; null where there is none. */
  snapshotId: string | null;
  /** Sandbox that the build is a snapshot of; null where it was built from steps. */
  sourceSandboxId: string | null;
  reason: BuildReason | null;
  createdAt: number;
  updatedAt: number;
  finishedAt: number | null;
}

/** Something that happened in the life of a sandbox. */
export interface SandboxEventRow {
  id: string;
  teamId: string;
  sandboxId: string;
  templateId: string;
  buildId: string;
  /** One run of the sandbox, from its start or resume to its end or pause. */
  executionId: string;
  type: string;
  data: Record<string, unknown>;
  createdAt: number;
}

/** A line of a sandbox's log. No two lines of one sandbox have the same time. */
export interface SandboxLogRow {
  sandboxId: string;
  createdAt: number;
  teamId: string;
  /** 0 debug, 1 info, 2 warn, 3 error. */
  level: number;
  message: string;
  fields: Record<string, string>;
}

/** What a sandbox or a team used, in one slot of a ring. */
export interface MetricRow {
  /** Sandbox or team ID. */
  subject: string;
  stepSeconds: number;
  slot: number;
  createdAt: number;
  /** JSON. */
  sample: string;
}

/** What a build was asked for with, beside what its row holds. */
export interface BuildRequestRow {
  buildId: string;
  teamId: string;
  /** Tags that point at the build once it is ready. */
  tags: string[];
}

/** A line of a build's log. */
export interface BuildLogRow {
  buildId: string;
  /** Counts from 0 without a gap. */
  position: number;
  createdAt: number;
  /** 0 debug, 1 info, 2 warn, 3 error. */
  level: number;
  /** `base`, the number of a step from 1, `finalize`, or null. */
  step: string | null;
  message: string;
}

/** What is known to come out of a piece of work. */
export interface BuildCacheRow {
  /** Hash of everything that the outcome depends on. */
  key: string;
  /** Layers that it added, lowest first. */
  layers: string[];
  createdAt: number;
  usedAt: number;
}

/** A secret of a team. */
export interface SecretRow {
  /** `sec_` and random text. */
  id: string;
  teamId: string;
  /** Lower case. */
  name: string;
  /** Counts from 1. */
  version: number;
  /** The value, encrypted. */
  sealed: string;
  metadata: Record<string, string>;
  createdAt: number;
  updatedAt: number;
}

type SandboxFlag = 'secure' | 'autoPause' | 'autoPauseMemory' | 'autoResume' | 'allowInternetAccess' | 'memoryKept';
type SandboxJson = 'earlierTokens' | 'metadata' | 'envVars' | 'network' | 'volumeMounts';

export const sandboxColumns = columnCodec<SandboxRow>()<SandboxFlag, SandboxJson>(
  ['secure', 'autoPause', 'autoPauseMemory', 'autoResume', 'allowInternetAccess', 'memoryKept'],
  ['earlierTokens', 'metadata', 'envVars', 'network', 'volumeMounts'],
);
export const apiKeyColumns = columnCodec<ApiKeyRow>()([], ['mask']);
export const accessTokenColumns = columnCodec<AccessTokenRow>()([], ['mask']);
export const templateColumns = columnCodec<TemplateRow>()(['public'], []);
export const templateBuildColumns = columnCodec<TemplateBuildRow>()([], ['layers', 'env', 'reason']);
export const sandboxEventColumns = columnCodec<SandboxEventRow>()([], ['data']);
export const sandboxLogColumns = columnCodec<SandboxLogRow>()([], ['fields']);
export const buildRequestColumns = columnCodec<BuildRequestRow>()([], ['tags']);
export const buildCacheColumns = columnCodec<BuildCacheRow>()([], ['layers']);
export const secretColumns = columnCodec<SecretRow>()([], ['metadata']);
