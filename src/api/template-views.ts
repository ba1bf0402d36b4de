import type { Static } from 'typebox';
import type { BuildLogRow, TemplateBuildRow, TemplateTagRow } from '../db/schema.ts';
import type { TemplateSummary } from '../db/template-store.ts';
import { levelNames } from '../templates/build/log.ts';
import { dateTime } from './date-time.ts';
import type {
  BuildLogEntry,
  RequestedTemplate,
  Template,
  TemplateBuild,
  TemplateLegacy,
  TemplateTag,
  TemplateWithBuilds,
} from './template-schemas.ts';

/** Stands as the maker of templates that come with the service. */
const SERVICE = { id: '00000000-0000-0000-0000-000000000000', email: 'service@sandbar.local' };

/** One element, or none for a template that was never built: the wire has no form for it. */
export function templateOf(summary: TemplateSummary): Static<typeof Template>[] {
  const { build, names } = summary;
  if (build === undefined) return [];
  return [{ ...legacyTemplateOf(summary, build), names, buildStatus: build.status }];
}

/** A template as the older endpoints show it, by one of its builds. */
export function legacyTemplateOf(
  { template, aliases, createdBy }: TemplateSummary,
  build: TemplateBuildRow,
): Static<typeof TemplateLegacy> {
  return {
    templateID: template.id,
    buildID: build.id,
    cpuCount: build.cpuCount,
    memoryMB: build.memoryMb,
    diskSizeMB: build.diskSizeMb,
    public: template.public,
    aliases,
    createdAt: dateTime(template.createdAt),
    updatedAt: dateTime(template.updatedAt),
    createdBy: createdBy === undefined ? SERVICE : { id: createdBy.id, email: createdBy.email },
    lastSpawnedAt: template.lastSpawnedAt === null ? null : dateTime(template.lastSpawnedAt),
    spawnCount: template.spawnCount,
    buildCount: template.buildCount,
    envdVersion: build.envdVersion,
  };
}

export function requestedTemplateOf(
  { template, aliases, names }: TemplateSummary,
  { build, tags }: { build: TemplateBuildRow; tags: string[] },
): Static<typeof RequestedTemplate> {
  return { templateID: template.id, buildID: build.id, public: template.public, names, tags, aliases };
}

export function logEntryOf(line: BuildLogRow): Static<typeof BuildLogEntry> {
  return {
    timestamp: dateTime(line.createdAt),
    message: line.message,
    level: levelNames[line.level] ?? 'info',
    ...(line.step !== null && { step: line.step }),
  };
}

export function templateWithBuildsOf(
  { template, aliases, names }: TemplateSummary,
  builds: Static<typeof TemplateBuild>[],
): Static<typeof TemplateWithBuilds> {
  return {
    templateID: template.id,
    public: template.public,
    aliases,
    names,
    createdAt: dateTime(template.createdAt),
    updatedAt: dateTime(template.updatedAt),
    lastSpawnedAt: template.lastSpawnedAt === null ? null : dateTime(template.lastSpawnedAt),
    spawnCount: template.spawnCount,
    builds,
  };
}

export function buildOf(build: TemplateBuildRow): Static<typeof TemplateBuild> {
  return {
    buildID: build.id,
    status: build.status,
    createdAt: dateTime(build.createdAt),
    updatedAt: dateTime(build.updatedAt),
    ...(build.finishedAt !== null && { finishedAt: dateTime(build.finishedAt) }),
    cpuCount: build.cpuCount,
    memoryMB: build.memoryMb,
    diskSizeMB: build.diskSizeMb,
    envdVersion: build.envdVersion,
  };
}

export function tagOf(tag: TemplateTagRow): Static<typeof TemplateTag> {
  return { tag: tag.tag, buildID: tag.buildId, createdAt: dateTime(tag.createdAt) };
}
