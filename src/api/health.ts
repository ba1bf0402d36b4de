import { Type } from 'typebox';
import type { Api } from './typebox-provider.ts';

export function serveHealth(app: Api): void {
  const schema = { response: { 200: Type.String() }, tags: ['health'], summary: 'Whether the service answers' };
  app.get('/health', { schema }, async (_request, reply) => reply.type('text/plain').send('Health check successful'));
}
