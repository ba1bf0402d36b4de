import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { TemplateBuilds } from '../templates/builds.ts';
import type { Uploads } from '../templates/uploads.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { failures } from './errors.ts';
import * as schemas from './template-schemas.ts';
import { type Api, Nothing, type TypeBoxTypeProvider } from './typebox-provider.ts';

interface Dependencies {
  builds: Pick<TemplateBuilds, 'own'>;
  uploads: Pick<Uploads, 'has' | 'ticket' | 'receive'>;
  auth: Authentication;
}

const tags = ['templates'];

/** The files of COPY steps: where to upload them, and the upload itself. */
export function serveTemplateFiles(app: Api, { builds, uploads, auth }: Dependencies): void {
  app.get(
    '/templates/:templateID/files/:hash',
    {
      onRequest: auth.team,
      schema: {
        params: schemas.FilesParams,
        response: { 201: schemas.UploadLink, ...failures },
        tags,
        ...byTeam,
        summary: 'Where to upload the files of a COPY step',
      },
    },
    async (request, reply) => {
      const { team } = callerOf(request);
      const { templateID, hash } = request.params;
      await builds.own(team, templateID);
      const { expiresAt, signature } = uploads.ticket(team.id, hash);
      const url = `${originOf(request)}/uploads/${team.id}/${hash}?expires=${expiresAt}&signature=${signature}`;
      return reply.code(201).send({ present: uploads.has(team.id, hash), url });
    },
  );
  // A scope of its own: elsewhere a body is JSON, and read whole before anything is done with it.
  app.register(async (child) => {
    const scope = child.withTypeProvider<TypeBoxTypeProvider>();
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
    scope.put(
      '/uploads/:team/:hash',
      {
        schema: {
          params: schemas.UploadParams,
          querystring: schemas.UploadQuery,
          response: { 200: Nothing('Stored'), ...failures },
          tags,
          summary: 'Upload an archive; the link itself is the permission',
        },
      },
      async (request, reply) => {
        const { team: teamId, hash: filesHash } = request.params;
        const { expires: expiresAt, signature } = request.query;
        const length = request.headers['content-length'];
        await uploads.receive(
          { teamId, filesHash, expiresAt, signature },
          (request.body as Readable | undefined) ?? request.raw,
          length === undefined ? undefined : Number(length),
        );
        return reply.code(200).header('content-length', '0').send(undefined);
      },
    );
  });
}

/** Where the client reached this service, so that it reaches it there again. */
function originOf(request: FastifyRequest): string {
  const forwarded = String(request.headers['x-forwarded-proto'] ?? '')
    .split(',')[0]
    ?.trim();
  return `${forwarded === 'https' ? 'https' : request.protocol}://${request.host}`;
}
