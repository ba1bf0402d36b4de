import swagger from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import type { Api } from './typebox-provider.ts';

/** Collects the schemas of all routes that are added afterwards. */
export function collectOpenApi(app: FastifyInstance): void {
  app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Sandbar', description: 'Control plane: sandboxes, templates, teams', version: '1' },
      components: {
        securitySchemes: {
          ApiKeyAuth: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
          AccessTokenAuth: { type: 'http', scheme: 'bearer' },
        },
      },
    },
  });
}

export function serveOpenApi(app: Api): void {
  app.get('/openapi.json', { schema: { hide: true } }, async (_request, reply) => reply.send(app.swagger()));
}
