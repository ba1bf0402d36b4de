import { type Static, Type } from 'typebox';
import { SandbarError } from '../core/errors.ts';
import type { SnapshotCursor, SnapshotRow } from '../db/snapshot-store.ts';
import { type Snapshots, snapshotIdOf } from '../sandboxes/snapshots.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { failures } from './errors.ts';
import { decodeNextToken, encodeNextToken } from './list-cursor.ts';
import { parseSandboxId } from './sandbox-id.ts';
import { SandboxParams } from './sandbox-schemas.ts';
import type { Api } from './typebox-provider.ts';

interface Dependencies {
  snapshots: Pick<Snapshots, 'create' | 'list'>;
  auth: Authentication;
}

const PAGE = 100;

const SnapshotInfo = Type.Object(
  {
    snapshotID: Type.String({ description: 'What a sandbox can be created from' }),
    names: Type.Array(Type.String(), { description: 'Full names without a tag' }),
  },
  { title: 'SnapshotInfo' },
);

const NewSnapshot = Type.Object(
  {
    name: Type.Optional(Type.String({ description: '[namespace/]alias[:tag]' })),
    memory: Type.Optional(Type.Boolean({ default: true, description: 'false: only the files' })),
  },
  { title: 'NewSnapshot' },
);

const ListQuery = Type.Object({
  sandboxID: Type.Optional(Type.String({ description: 'Only snapshots of this sandbox' })),
  name: Type.Optional(Type.String({ description: 'Only snapshots of this name; with :tag, only that one' })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: PAGE })),
  nextToken: Type.Optional(Type.String()),
});

export function serveSnapshots(app: Api, { snapshots, auth }: Dependencies): void {
  const onRequest = auth.team;

  app.post(
    '/sandboxes/:sandboxID/snapshots',
    {
      onRequest,
      schema: {
        params: SandboxParams,
        body: NewSnapshot,
        response: { 201: SnapshotInfo, ...failures },
        tags: ['sandboxes'],
        ...byTeam,
        summary: 'Take a snapshot of a running sandbox',
      },
    },
    async (request, reply) => {
      const id = parseSandboxId(request.params.sandboxID);
      const { name, memory = true } = request.body;
      const snapshot = await snapshots.create(callerOf(request).team, id, { name, filesOnly: !memory });
      return reply.code(201).send(infoOf(snapshot));
    },
  );
  app.get(
    '/snapshots',
    {
      onRequest,
      schema: {
        querystring: ListQuery,
        response: { 200: Type.Array(SnapshotInfo), ...failures },
        tags: ['snapshots'],
        ...byTeam,
        summary: 'List snapshots, a page at a time (next page: header X-Next-Token)',
      },
    },
    async (request, reply) => {
      const { sandboxID, name, limit = PAGE, nextToken } = request.query;
      const { items, next } = await snapshots.list(callerOf(request).team, {
        sandboxId: sandboxID ? parseSandboxId(sandboxID) : null,
        name: name || null,
        limit,
        cursor: nextToken ? cursorOf(nextToken) : null,
      });
      if (next !== null) reply.header('X-Next-Token', tokenOf(next));
      return reply.send(items.map(infoOf));
    },
  );
}

function infoOf(snapshot: SnapshotRow): Static<typeof SnapshotInfo> {
  return { snapshotID: snapshotIdOf(snapshot), names: snapshot.names };
}

// A tag may hold characters that a token's id has not, so it goes in as hex.

function tokenOf({ createdAt, templateId, tag }: SnapshotCursor): string {
  return encodeNextToken({ time: createdAt, id: `${templateId}-${Buffer.from(tag).toString('hex')}` });
}

function cursorOf(token: string): SnapshotCursor {
  const { time, id } = decodeNextToken(token);
  const [templateId, hex] = id.split('-');
  if (templateId === undefined || hex === undefined) throw new SandbarError('invalid', 'Invalid next token');
  return { createdAt: time, templateId, tag: Buffer.from(hex, 'hex').toString('utf8') };
}
