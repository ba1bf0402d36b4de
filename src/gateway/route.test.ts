import { expect, test } from 'vitest';
import { routeRequest } from './route.ts';

const id = 'iabcdefghij0123456789';
const none = { sandboxId: undefined, sandboxPort: undefined };
const named = { sandboxId: id, sandboxPort: '49983' };
const api = { kind: 'api' };
const sandbox = (port: number, sandboxId = id) => ({ kind: 'sandbox', id: sandboxId, port });
const error = (message: string) => ({ kind: 'error', status: 400, message });

test.each([
  [`3000-${id}.sandbar.local`, sandbox(3000)],
  [`3000-${id}.sandbar.local:7070`, sandbox(3000)],
  [`3000-${id.toUpperCase()}.SANDBAR.local`, sandbox(3000)],
  [`3000-${id}-client.sandbar.local`, sandbox(3000)],
  [`3000-${id}.another.test`, sandbox(3000)],
  ['api.sandbar.local', api],
  ['sandbar.local', api],
  ['sandbox.sandbar.local', api],
  ['localhost:7070', api],
  ['127.0.0.1:7070', api],
  ['[::1]:7070', api],
  ['my-server.lan', api],
  ['10-0-0-5.nip.io', api],
  ['', api],
  ['abc-def.sandbar.local', error('Invalid sandbox port')],
  [`0-${id}.sandbar.local`, error('Invalid sandbox port')],
  [`70000-${id}.sandbar.local`, error('Invalid sandbox port')],
  ['3000-.sandbar.local', error('Invalid sandbox ID')],
  ['3000-a_b.sandbar.local', error('Invalid sandbox ID')],
])('host %j', (host, route) => {
  expect(routeRequest(host, none, 'sandbar.local:7070')).toEqual(route);
});

test.each(['localhost:7070', '10.1.2.3', 'sandbox.sandbar.local', 'my-server.lan:7070', '[::1]:7070'])(
  'headers decide under %s',
  (host) => {
    expect(routeRequest(host, named, 'sandbar.local')).toEqual(sandbox(49983));
  },
);

test('the host of a sandbox is stronger than the headers', () => {
  expect(routeRequest(`80-${id}.sandbar.local`, { ...named, sandboxId: 'iother' }, 'sandbar.local')).toEqual(
    sandbox(80),
  );
});

test.each([
  [{ sandboxId: id, sandboxPort: undefined }, error('missing header')],
  [{ sandboxId: undefined, sandboxPort: '80' }, error('missing header')],
  [{ sandboxId: id, sandboxPort: 'http' }, error('Invalid sandbox port')],
  [{ sandboxId: '../etc', sandboxPort: '80' }, error('Invalid sandbox ID')],
  [{ sandboxId: `${id}-client`, sandboxPort: '80' }, sandbox(80)],
])('headers %o', (headers, route) => {
  expect(routeRequest('localhost', headers, 'sandbar.local')).toEqual(route);
});
