import type { TemplateRemoval } from '../templates/removal.ts';
import { type Authentication, byTeam, callerOf } from './auth.ts';
import { failures } from './errors.ts';
import { TemplateParams } from './template-schemas.ts';
import { type Api, Nothing } from './typebox-provider.ts';

interface Dependencies {
  removal: Pick<TemplateRemoval, 'remove'>;
  auth: Authentication;
}

export function serveTemplateRemoval(app: Api, { removal, auth }: Dependencies): void {
  app.delete(
    '/templates/:templateID',
    {
      onRequest: auth.team,
      schema: {
        params: TemplateParams,
        response: { 204: Nothing('Deleted'), ...failures },
        tags: ['templates'],
        ...byTeam,
        summary: 'Delete a template or a snapshot',
      },
    },
    async (request, reply) => {
      await removal.remove(callerOf(request).team, request.params.templateID);
      return reply.code(204).send(undefined);
    },
  );
}
