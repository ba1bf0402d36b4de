import { Type } from 'typebox';
import { DateTime, NullableDateTime, OneOf, StringMap } from './typebox-provider.ts';

// The wire types of the template endpoints.

const BuildStatus = OneOf(['building', 'waiting', 'ready', 'error', 'uploaded'], { title: 'TemplateBuildStatus' });

export const Template = Type.Object(
  {
    templateID: Type.String(),
    buildID: Type.String(),
    cpuCount: Type.Integer({ minimum: 1 }),
    memoryMB: Type.Integer({ minimum: 128 }),
    diskSizeMB: Type.Integer({ minimum: 0 }),
    public: Type.Boolean(),
    aliases: Type.Array(Type.String(), { deprecated: true }),
    names: Type.Array(Type.String()),
    createdAt: DateTime,
    updatedAt: DateTime,
    createdBy: Type.Object({ id: Type.String({ format: 'uuid' }), email: Type.String() }),
    lastSpawnedAt: NullableDateTime,
    spawnCount: Type.Integer(),
    buildCount: Type.Integer(),
    envdVersion: Type.String(),
    buildStatus: BuildStatus,
  },
  { title: 'Template' },
);

export const TemplateBuild = Type.Object(
  {
    buildID: Type.String({ format: 'uuid' }),
    status: BuildStatus,
    createdAt: DateTime,
    updatedAt: DateTime,
    finishedAt: Type.Optional(DateTime),
    cpuCount: Type.Integer({ minimum: 1 }),
    memoryMB: Type.Integer({ minimum: 128 }),
    diskSizeMB: Type.Optional(Type.Integer({ minimum: 0 })),
    envdVersion: Type.Optional(Type.String()),
  },
  { title: 'TemplateBuild' },
);

export const TemplateWithBuilds = Type.Object(
  {
    templateID: Type.String(),
    public: Type.Boolean(),
    aliases: Type.Array(Type.String(), { deprecated: true }),
    names: Type.Array(Type.String()),
    createdAt: DateTime,
    updatedAt: DateTime,
    lastSpawnedAt: NullableDateTime,
    spawnCount: Type.Integer(),
    builds: Type.Array(TemplateBuild),
  },
  { title: 'TemplateWithBuilds' },
);

export const TemplateTag = Type.Object(
  { tag: Type.String(), buildID: Type.String({ format: 'uuid' }), createdAt: DateTime },
  { title: 'TemplateTag' },
);

export const TemplateAlias = Type.Object(
  { templateID: Type.String(), public: Type.Boolean() },
  { title: 'TemplateAlias' },
);

export const NewTemplateV3 = Type.Object(
  {
    name: Type.Optional(Type.String({ maxLength: 128, description: '[namespace/]name[:tag]' })),
    tags: Type.Optional(Type.Array(Type.String(), { maxItems: 100 })),
    alias: Type.Optional(Type.String({ maxLength: 128, deprecated: true })),
    teamID: Type.Optional(Type.String({ deprecated: true })),
    cpuCount: Type.Optional(Type.Integer({ minimum: 1 })),
    memoryMB: Type.Optional(Type.Integer({ minimum: 128 })),
    minFreeDiskMb: Type.Optional(Type.Integer({ minimum: 0 })),
  },
  { title: 'TemplateBuildRequestV3' },
);

export const RequestedTemplate = Type.Object(
  {
    templateID: Type.String(),
    buildID: Type.String(),
    public: Type.Boolean(),
    names: Type.Array(Type.String()),
    tags: Type.Array(Type.String()),
    aliases: Type.Array(Type.String(), { deprecated: true }),
  },
  { title: 'TemplateRequestResponseV3' },
);

export const NewTemplateV2 = Type.Object(
  {
    alias: Type.String({ maxLength: 128 }),
    teamID: Type.Optional(Type.String({ deprecated: true })),
    cpuCount: Type.Optional(Type.Integer({ minimum: 1 })),
    memoryMB: Type.Optional(Type.Integer({ minimum: 128 })),
  },
  { title: 'TemplateBuildRequestV2' },
);

export const NewTemplate = Type.Object(
  {
    dockerfile: Type.String({ minLength: 1 }),
    alias: Type.Optional(Type.String({ maxLength: 128 })),
    teamID: Type.Optional(Type.String()),
    startCmd: Type.Optional(Type.String()),
    readyCmd: Type.Optional(Type.String()),
    cpuCount: Type.Optional(Type.Integer({ minimum: 1 })),
    memoryMB: Type.Optional(Type.Integer({ minimum: 128 })),
    filesHash: Type.Optional(
      Type.String({
        pattern: '^[0-9a-f]{64}$',
        description: 'Uploaded archive that COPY takes from (not in the protocol)',
      }),
    ),
  },
  { title: 'TemplateBuildRequest' },
);

/** What every generation of the protocol has of a template. */
export const TemplateLegacy = Type.Object(
  {
    templateID: Type.String(),
    buildID: Type.String(),
    cpuCount: Type.Integer({ minimum: 1 }),
    memoryMB: Type.Integer({ minimum: 128 }),
    diskSizeMB: Type.Integer({ minimum: 0 }),
    public: Type.Boolean(),
    aliases: Type.Array(Type.String()),
    createdAt: DateTime,
    updatedAt: DateTime,
    createdBy: Type.Object({ id: Type.String({ format: 'uuid' }), email: Type.String() }),
    lastSpawnedAt: NullableDateTime,
    spawnCount: Type.Integer(),
    buildCount: Type.Integer(),
    envdVersion: Type.String(),
  },
  { title: 'TemplateLegacy' },
);

const RegistryCredentials = Type.Union(
  [
    Type.Object({ type: Type.Literal('registry'), username: Type.String(), password: Type.String() }),
    Type.Object({
      type: Type.Literal('aws'),
      awsAccessKeyId: Type.String(),
      awsSecretAccessKey: Type.String(),
      awsRegion: Type.String(),
    }),
    Type.Object({ type: Type.Literal('gcp'), serviceAccountJson: Type.String() }),
  ],
  { title: 'FromImageRegistry' },
);

export const BuildStart = Type.Object(
  {
    fromImage: Type.Optional(Type.String()),
    fromTemplate: Type.Optional(Type.String()),
    fromImageRegistry: Type.Optional(RegistryCredentials),
    force: Type.Optional(Type.Boolean({ default: false })),
    steps: Type.Optional(
      Type.Array(
        Type.Object(
          {
            type: Type.String(),
            args: Type.Optional(Type.Array(Type.String())),
            filesHash: Type.Optional(Type.String()),
            force: Type.Optional(Type.Boolean({ default: false })),
          },
          { title: 'TemplateStep' },
        ),
        { maxItems: 1000 },
      ),
    ),
    startCmd: Type.Optional(Type.String()),
    readyCmd: Type.Optional(Type.String()),
  },
  { title: 'TemplateBuildStartV2' },
);

export const LogLevel = OneOf(['debug', 'info', 'warn', 'error'], { title: 'LogLevel' });

export const BuildLogEntry = Type.Object(
  { timestamp: DateTime, message: Type.String(), level: LogLevel, step: Type.Optional(Type.String()) },
  { title: 'BuildLogEntry' },
);

export const TemplateBuildInfo = Type.Object(
  {
    templateID: Type.String(),
    buildID: Type.String(),
    status: BuildStatus,
    logs: Type.Array(Type.String(), { deprecated: true }),
    logEntries: Type.Array(BuildLogEntry),
    reason: Type.Optional(
      Type.Object(
        { message: Type.String(), step: Type.Optional(Type.String()), logEntries: Type.Array(BuildLogEntry) },
        { title: 'BuildStatusReason' },
      ),
    ),
  },
  { title: 'TemplateBuildInfo' },
);

export const BuildLogs = Type.Object({ logs: Type.Array(BuildLogEntry) }, { title: 'TemplateBuildLogsResponse' });

export const UploadLink = Type.Object(
  {
    present: Type.Boolean(),
    url: Type.Optional(Type.String()),
    headers: Type.Optional(StringMap),
  },
  { title: 'TemplateBuildFileUpload' },
);

export const TemplateChange = Type.Object(
  { public: Type.Optional(Type.Boolean()) },
  { title: 'TemplateUpdateRequest' },
);
export const ChangedTemplate = Type.Object({ names: Type.Array(Type.String()) }, { title: 'TemplateUpdateResponse' });

export const TagAssignment = Type.Object(
  { target: Type.String(), tags: Type.Array(Type.String(), { minItems: 1, maxItems: 100 }) },
  { title: 'AssignTemplateTagsRequest' },
);
export const AssignedTags = Type.Object(
  { tags: Type.Array(Type.String()), buildID: Type.String({ format: 'uuid' }) },
  { title: 'AssignedTemplateTags' },
);
export const TagRemoval = Type.Object(
  { name: Type.String(), tags: Type.Array(Type.String()) },
  { title: 'DeleteTemplateTagsRequest' },
);

export const BuildParams = Type.Object({ templateID: Type.String(), buildID: Type.String() });
export const FilesParams = Type.Object({ templateID: Type.String(), hash: Type.String({ pattern: '^[0-9a-f]{64}$' }) });
export const StatusQuery = Type.Object({
  logsOffset: Type.Optional(Type.Integer({ minimum: 0, default: 0 })),
  limit: Type.Optional(Type.Integer({ minimum: 0, maximum: 100, default: 100 })),
  level: Type.Optional(LogLevel),
});
export const BuildLogsQuery = Type.Object({
  cursor: Type.Optional(Type.Integer({ minimum: 0, description: 'Milliseconds since 1970' })),
  limit: Type.Optional(Type.Integer({ minimum: 0, maximum: 100, default: 100 })),
  direction: Type.Optional(OneOf(['forward', 'backward'])),
  level: Type.Optional(LogLevel),
  source: Type.Optional(OneOf(['temporary', 'persistent'])),
});
export const UploadParams = Type.Object({ team: Type.String(), hash: Type.String({ pattern: '^[0-9a-f]{64}$' }) });
export const UploadQuery = Type.Object({ expires: Type.Integer(), signature: Type.String() });

export const TemplateParams = Type.Object({ templateID: Type.String({ description: 'Template ID or name' }) });
export const AliasParams = Type.Object({ alias: Type.String() });
export const TeamQuery = Type.Object({ teamID: Type.Optional(Type.String()) });

const page = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: 100 })),
  nextToken: Type.Optional(Type.String()),
};
export const PageQuery = Type.Object(page);
export const TeamPageQuery = Type.Object({ ...page, teamID: Type.Optional(Type.String()) });
