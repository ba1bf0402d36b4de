import { Type } from 'typebox';
import { DateTime, NullableDateTime, OneOf } from './typebox-provider.ts';

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

export const TemplateParams = Type.Object({ templateID: Type.String({ description: 'Template ID or name' }) });
export const AliasParams = Type.Object({ alias: Type.String() });
export const TeamQuery = Type.Object({ teamID: Type.Optional(Type.String()) });

const page = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: 100 })),
  nextToken: Type.Optional(Type.String()),
};
export const PageQuery = Type.Object(page);
export const TeamPageQuery = Type.Object({ ...page, teamID: Type.Optional(Type.String()) });
