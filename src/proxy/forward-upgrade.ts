import { type IncomingMessage, request } from 'node:http';
import type { Duplex } from 'node:stream';
import { noAnswer, refuseUpgrade } from '../core/sandbox-answers.ts';
import { forwardedHeaders, type RequestTarget, returnedHeaders } from './headers.ts';

/** Passes an upgrade on (WebSocket or any other protocol). Once the program agrees, the two connections are joined as they are. */
export function forwardUpgrade(
  connection: Duplex,
  sandboxId: string,
  target: RequestTarget,
  req: IncomingMessage,
  client: Duplex,
  head: Buffer,
): void {
  const upgrade = ['Connection', 'Upgrade', 'Upgrade', req.headers.upgrade ?? ''];
  const outgoing = request({
    createConnection: () => connection,
    method: req.method ?? 'GET',
    path: req.url ?? '/',
    headers: [...forwardedHeaders(req, target), ...upgrade],
    setHost: false,
  });
  client.once('close', () => connection.destroy());
  connection.once('close', () => client.destroy());
  outgoing.on('upgrade', (answer, program, rest) => {
    client.write(statusAndHeaders(answer, ['Connection', 'Upgrade', 'Upgrade', answer.headers.upgrade ?? '']));
    if (rest.length > 0) client.write(rest);
    if (head.length > 0) program.write(head);
    program.pipe(client);
    client.pipe(program);
  });
  outgoing.on('response', (answer) => {
    client.write(statusAndHeaders(answer, ['Connection', 'close']));
    answer.pipe(client);
  });
  outgoing.on('error', () => {
    if (!client.destroyed) refuseUpgrade(client, noAnswer(sandboxId, target.port), req.headers);
  });
  outgoing.end();
}

function statusAndHeaders(answer: IncomingMessage, connection: readonly string[]): string {
  const flat = [...returnedHeaders(answer.rawHeaders, answer.headers), ...connection];
  let text = `HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}\r\n`;
  for (let index = 0; index + 1 < flat.length; index += 2) text += `${flat[index]}: ${flat[index + 1]}\r\n`;
  return `${text}\r\n`;
}
