import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import { gunzipSync, gzipSync } from 'node:zlib';
import { beforeAll, describe, expect, it } from 'vitest';
import { describeRaw, type Json } from '../support/raw.ts';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz';

describeRaw('files on the wire', (sandbox) => {
  const at = (path: string, more: Record<string, string> = {}) => `/files?${new URLSearchParams({ path, ...more })}`;
  const get = (path: string, headers: Record<string, string> = {}, more: Record<string, string> = {}) =>
    sandbox().fetch(at(path, more), { headers: { 'accept-encoding': 'identity', ...headers } });
  const post = async (url: string, body: NonNullable<RequestInit['body']>, headers: Record<string, string> = {}) => {
    const response = await sandbox().fetch(url, { method: 'POST', body, headers });
    return { status: response.status, body: (await response.json()) as Json };
  };

  beforeAll(async () => {
    await sandbox().write('/home/user/alphabet.txt', ALPHABET);
    await sandbox().write('/home/user/empty', '');
  });

  describe('GET /files', () => {
    it('gives the bytes with what a browser needs to know of them', async () => {
      const response = await get('alphabet.txt');
      expect(response.status).toBe(200);
      expect(await response.text()).toBe(ALPHABET);
      const { headers } = response;
      expect(headers.get('content-length')).toBe('26');
      expect(headers.get('content-type')).toBe('text/plain; charset=utf-8');
      expect(headers.get('content-disposition')).toBe('inline; filename=alphabet.txt');
      expect(headers.get('vary')).toMatch(/accept-encoding/i);
      expect(headers.get('accept-ranges')).toBe('bytes');
      expect(headers.get('last-modified')).toMatch(/GMT$/);
    });

    it.each([
      ['page.html', '<p>', 'text/html; charset=utf-8'],
      ['data.json', '{}', 'application/json'],
      ['picture.png', '\x89PNG\r\n\x1a\n', 'image/png'],
      ['style.css', 'a{}', 'text/css; charset=utf-8'],
      ['no-extension-text', 'plain words', 'text/plain; charset=utf-8'],
      ['no-extension-html', '<!DOCTYPE html><html>', 'text/html; charset=utf-8'],
      ['no-extension-binary', '\x00\x01\x02\xff', 'application/octet-stream'],
    ])('knows the type of %s', async (name, content, type) => {
      await sandbox().write(`/home/user/types/${name}`, Buffer.from(content, 'latin1'));
      const response = await get(`types/${name}`);
      expect(response.headers.get('content-type')?.split(';')[0]).toBe(type.split(';')[0]);
      await response.body?.cancel();
    });

    it('gives names that are not ASCII in a form that headers can bear', async () => {
      await sandbox().write('/home/user/ünï "q".txt', 'x');
      const response = await get('ünï "q".txt');
      expect(response.status).toBe(200);
      expect(response.headers.get('content-disposition')).toMatch(/^inline; filename\*=utf-8''.*%C3%BC/i);
      await response.body?.cancel();
    });

    describe('ranges', () => {
      it.each([
        ['bytes=0-4', 'abcde', 'bytes 0-4/26'],
        ['bytes=5-5', 'f', 'bytes 5-5/26'],
        ['bytes=20-', 'uvwxyz', 'bytes 20-25/26'],
        ['bytes=-3', 'xyz', 'bytes 23-25/26'],
        ['bytes=10-1000', 'klmnopqrstuvwxyz', 'bytes 10-25/26'],
        ['bytes=-1000', ALPHABET, 'bytes 0-25/26'],
      ])('%s', async (range, content, contentRange) => {
        const response = await get('alphabet.txt', { range, 'accept-encoding': 'gzip' });
        expect(response.status).toBe(206);
        expect(response.headers.get('content-range')).toBe(contentRange);
        expect(response.headers.get('content-encoding')).toBeNull();
        expect(response.headers.get('content-length')).toBe(String(content.length));
        expect(await response.text()).toBe(content);
      });

      it.each(['bytes=26-', 'bytes=100-200', 'bytes=-0'])('%s cannot be satisfied', async (range) => {
        const response = await get('alphabet.txt', { range });
        expect(response.status).toBe(416);
        expect(response.headers.get('content-range')).toBe('bytes */26');
        await response.body?.cancel();
      });

      it.each(['bytes=5-2', 'bytes=a-b', 'lines=1-2', 'bytes 1-2'])(
        '%s is no range and ignored or refused',
        async (range) => {
          const response = await get('alphabet.txt', { range });
          expect([200, 416]).toContain(response.status);
          if (response.status === 200) expect(await response.text()).toBe(ALPHABET);
          else await response.body?.cancel();
        },
      );

      it('in the middle of a large file', async () => {
        const bytes = randomBytes(5_000_000);
        await sandbox().write('/home/user/large', bytes);
        const response = await get('large', { range: 'bytes=1048570-3145739' });
        expect(response.status).toBe(206);
        expect(Buffer.from(await response.arrayBuffer()).equals(bytes.subarray(1_048_570, 3_145_740))).toBe(true);
      });
    });

    describe('conditions', () => {
      it('spare the bytes of what has not changed', async () => {
        const first = await get('alphabet.txt');
        await first.body?.cancel();
        const etag = first.headers.get('etag');
        const lastModified = first.headers.get('last-modified') as string;
        const since = await get('alphabet.txt', { 'if-modified-since': lastModified, 'accept-encoding': 'gzip' });
        expect(since.status).toBe(304);
        expect(await since.text()).toBe('');
        const later = await get('alphabet.txt', { 'if-modified-since': new Date(0).toUTCString() });
        expect(later.status).toBe(200);
        await later.body?.cancel();
        expect(etag).toMatch(/^(W\/)?".+"$/);
        expect((await get('alphabet.txt', { 'if-none-match': etag as string })).status).toBe(304);
        expect((await get('alphabet.txt', { 'if-none-match': '*' })).status).toBe(304);
        expect((await get('alphabet.txt', { 'if-none-match': '"other"' })).status).toBe(200);
        expect((await get('alphabet.txt', { 'if-unmodified-since': new Date(0).toUTCString() })).status).toBe(412);
        expect((await get('alphabet.txt', { 'if-match': '"other"' })).status).toBe(412);
      });

      it('hold a range only while the file is the same', async () => {
        const first = await get('alphabet.txt');
        await first.body?.cancel();
        const etag = first.headers.get('etag') as string;
        const lastModified = first.headers.get('last-modified') as string;
        const range = 'bytes=0-1';
        if (!etag.startsWith('W/')) expect((await get('alphabet.txt', { range, 'if-range': etag })).status).toBe(206);
        expect((await get('alphabet.txt', { range, 'if-range': lastModified })).status).toBeOneOf([200, 206]);
        expect((await get('alphabet.txt', { range, 'if-range': '"other"' })).status).toBe(200);
        expect((await get('alphabet.txt', { range, 'if-range': new Date(0).toUTCString() })).status).toBe(200);
      });
    });

    describe('encodings', () => {
      /** A request whose answer is not unpacked on the way. */
      const packed = (path: string, acceptEncoding: string | undefined) =>
        new Promise<{ status: number; headers: http.IncomingHttpHeaders; body: Buffer }>((resolve, reject) => {
          const headers = {
            ...sandbox().headers,
            ...(acceptEncoding !== undefined && { 'accept-encoding': acceptEncoding }),
          };
          http
            .get(`${sandbox().service.url}${at(path)}`, { headers }, (response) => {
              const chunks: Buffer[] = [];
              response.on('data', (chunk: Buffer) => chunks.push(chunk));
              response.on('end', () =>
                resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) }),
              );
            })
            .on('error', reject);
        });

      it.each([
        ['gzip', 'gzip'],
        ['gzip, deflate, br', 'gzip'],
        ['deflate, gzip;q=0.5, identity;q=0.5', 'gzip'],
        ['gzip;q=0.1, identity;q=0.9', undefined],
        ['identity', undefined],
        ['gzip;q=0', undefined],
        ['*', undefined],
        ['deflate', undefined],
        ['', undefined],
        [undefined, undefined],
      ])('Accept-Encoding %j gives %s', async (accepted, coding) => {
        const answer = await packed('alphabet.txt', accepted);
        expect(answer.status).toBe(200);
        expect(answer.headers['content-encoding']).toBe(coding);
        if (coding === 'gzip') {
          expect(answer.headers['content-length']).toBeUndefined();
          expect(gunzipSync(answer.body).toString()).toBe(ALPHABET);
        } else {
          expect(answer.headers['content-length']).toBe('26');
          expect(answer.body.toString()).toBe(ALPHABET);
        }
      });

      it.each(['identity;q=0, br', 'br, *;q=0', 'deflate;q=1, identity;q=0'])(
        '%j can be met by neither',
        async (accepted) => {
          const answer = await packed('alphabet.txt', accepted);
          expect(answer.status).toBe(406);
          const { code, message } = JSON.parse(answer.body.toString());
          expect(code).toBe(406);
          expect(message).toMatch(
            /^error parsing Accept-Encoding: .*no acceptable encoding found, supported: \[identity, gzip\]/,
          );
        },
      );

      it('an empty file has a length, of nothing', async () => {
        const answer = await packed('empty', 'gzip, deflate');
        expect(answer.status).toBe(200);
        expect(answer.headers['content-length']).toBe('0');
      });
    });

    it('tells what is wrong', async () => {
      const missing = await get('missing');
      expect(missing.status).toBe(404);
      expect(await missing.json()).toEqual({ code: 404, message: "path '/home/user/missing' does not exist" });
      const directory = await get('/home/user');
      expect(directory.status).toBe(400);
      expect(await directory.json()).toEqual({ code: 400, message: "path '/home/user' is a directory" });
      const nobody = await get('x', {}, { username: 'nobody-here' });
      expect(nobody.status).toBe(401);
      expect(await nobody.json()).toEqual({
        code: 401,
        message: "error looking up user 'nobody-here': user: unknown user nobody-here",
      });
      const home = await get('~root/x');
      expect(home.status).toBe(400);
      expect(await home.json()).toMatchObject({ code: 400, message: expect.stringContaining('cannot expand') });
    });

    it('waits for nothing that is no file', async () => {
      await sandbox().run('mkfifo /tmp/fifo');
      const fifo = await get('/tmp/fifo');
      await fifo.body?.cancel();
      const endless = await get('/dev/zero');
      await endless.body?.cancel();
      expect(await sandbox().goesOn()).toBe(true);
    });

    it('follows links inside the sandbox', async () => {
      await sandbox().run('ln -sf /home/user/alphabet.txt /tmp/link; ln -sf nowhere /tmp/broken');
      expect(await (await get('/tmp/link')).text()).toBe(ALPHABET);
      const broken = await get('/tmp/broken');
      expect(broken.status).toBe(404);
      await broken.body?.cancel();
    });

    it('ignores Basic and takes the user from the query', async () => {
      await sandbox().run('sudo sh -c "echo of root > /root/mine"');
      const basic = { authorization: `Basic ${Buffer.from('root:').toString('base64')}` };
      const wrong = await get('mine', basic);
      expect(wrong.status).toBe(404);
      await wrong.body?.cancel();
      expect(await (await get('mine', {}, { username: 'root' })).text()).toBe('of root\n');
    });
  });

  describe('POST /files', () => {
    const boundary = 'the-boundary';
    const multipart = (...parts: { headers: string[]; body: string | Buffer }[]) =>
      Buffer.concat([
        ...parts.flatMap(({ headers, body }) => [
          Buffer.from(`--${boundary}\r\n${headers.join('\r\n')}\r\n\r\n`),
          Buffer.from(body),
          Buffer.from('\r\n'),
        ]),
        Buffer.from(`--${boundary}--\r\n`),
      ]);
    const disposition = (name: string, filename?: string) =>
      `Content-Disposition: form-data; name="${name}"${filename === undefined ? '' : `; filename="${filename}"`}`;
    const form = { 'content-type': `multipart/form-data; boundary=${boundary}` };
    const read = async (path: string) => (await get(path)).text();

    it('keeps the directories of a file name', async () => {
      const body = multipart({ headers: [disposition('file', 'deep/er/file.txt')], body: 'content' });
      expect(await post('/files', body, form)).toEqual({
        status: 200,
        body: [{ path: '/home/user/deep/er/file.txt', name: 'file.txt', type: 'file' }],
      });
      expect(await read('deep/er/file.txt')).toBe('content');
    });

    it('lets the query say where it goes', async () => {
      const body = multipart({ headers: [disposition('file', 'elsewhere')], body: 'x' });
      expect((await post(at('/home/user/here'), body, form)).body).toMatchObject([{ path: '/home/user/here' }]);
    });

    it('passes over parts of other names', async () => {
      const body = multipart(
        { headers: [disposition('comment')], body: 'not a file' },
        { headers: [disposition('other', 'o')], body: 'nor this' },
        { headers: [disposition('file', 'kept')], body: 'this' },
      );
      expect((await post('/files', body, form)).body).toMatchObject([{ path: '/home/user/kept' }]);
      const none = multipart({ headers: [disposition('comment')], body: 'x' });
      expect(await post('/files', none, form)).toEqual({ status: 200, body: [] });
    });

    it.each([
      ['quotes as browsers write them', 'a%22b', 'a"b'],
      ['quotes as others do', 'a\\"b', 'a"b'],
      ['a semicolon', 'a; b', 'a; b'],
      ['text that is not ASCII', 'grüße 漢字', 'grüße 漢字'],
      ['a percent sign', '100%', '100%'],
    ])('reads %s in a name', async (_name, sent, meant) => {
      const body = multipart({ headers: [disposition('file', `/home/user/names/${sent}`)], body: sent });
      expect((await post('/files', body, form)).body).toMatchObject([{ name: meant }]);
      expect(await read(`/home/user/names/${meant}`)).toBe(sent);
    });

    it('reads filename* and headers in any case and order', async () => {
      const body = multipart({
        headers: [
          'content-type: text/plain',
          "CONTENT-DISPOSITION: form-data; filename*=UTF-8''%E2%82%AC.txt; name=file; filename=fallback.txt",
        ],
        body: '€',
      });
      expect((await post('/files', body, form)).body).toMatchObject([{ name: '€.txt' }]);
    });

    it('finds boundaries wherever they fall, and not where they are not', async () => {
      const tricky = Buffer.from(`\r\n--${boundary.slice(0, -1)}\r\n--\r\n-${boundary}\r\n--the\r\n`);
      const content = Buffer.concat([tricky, randomBytes(300_000), tricky]);
      const body = multipart({ headers: [disposition('file', 'tricky')], body: content });
      for (const size of [1_000_000, 4096, 61]) {
        const pieces = new ReadableStream<Uint8Array>({
          start(controller) {
            for (let offset = 0; offset < body.length; offset += size)
              controller.enqueue(Uint8Array.from(body.subarray(offset, offset + size)));
            controller.close();
          },
        });
        const response = await sandbox().fetch('/files', {
          method: 'POST',
          headers: form,
          body: pieces,
          duplex: 'half',
        } as RequestInit & { headers: Record<string, string> });
        expect(response.status).toBe(200);
        await response.body?.cancel();
        const stored = Buffer.from(await (await get('tricky')).arrayBuffer());
        expect(createHash('sha256').update(stored).digest('hex')).toBe(
          createHash('sha256').update(content).digest('hex'),
        );
      }
    });

    it('takes a preamble, an epilogue and a quoted boundary', async () => {
      const inner = multipart({ headers: [disposition('file', 'preamble')], body: 'p' });
      const body = Buffer.concat([Buffer.from('ignore this\r\n'), inner, Buffer.from('and this')]);
      const answer = await post('/files', body, { 'content-type': `multipart/form-data; boundary="${boundary}"` });
      expect(answer.body).toMatchObject([{ name: 'preamble' }]);
    });

    it('unpacks a compressed form', async () => {
      const body = gzipSync(multipart({ headers: [disposition('file', 'zipped-form')], body: 'unzipped' }));
      expect((await post('/files', body, { ...form, 'content-encoding': 'gzip' })).status).toBe(200);
      expect(await read('zipped-form')).toBe('unzipped');
    });

    it.each([
      ['no boundary', 'multipart/form-data', Buffer.from('x')],
      [
        'no end',
        `multipart/form-data; boundary=${boundary}`,
        Buffer.from(`--${boundary}\r\n${disposition('file', 'cut')}\r\n\r\nabc`),
      ],
      ['nothing', `multipart/form-data; boundary=${boundary}`, Buffer.alloc(0)],
      [
        'headers without end',
        `multipart/form-data; boundary=${boundary}`,
        Buffer.from(`--${boundary}\r\nX: ${'y'.repeat(100_000)}`),
      ],
      ['junk after a boundary', `multipart/form-data; boundary=${boundary}`, Buffer.from(`--${boundary}junk\r\n\r\n`)],
    ])('refuses a form with %s', async (_name, type, body) => {
      const answer = await post('/files', body, { 'content-type': type });
      expect(answer.status).toBe(400);
      expect(answer.body).toMatchObject({ code: 400, message: expect.any(String) });
      expect(await sandbox().goesOn()).toBe(true);
    });

    it('refuses two files on one path', async () => {
      const body = multipart(
        { headers: [disposition('file', 'same')], body: '1' },
        { headers: [disposition('file', './same')], body: '2' },
      );
      const answer = await post('/files', body, form);
      expect(answer.status).toBe(400);
      expect(await read('same')).toBe('1');
    });

    it('takes a plain body, which needs a path', async () => {
      const type = { 'content-type': 'application/octet-stream' };
      expect(await post(at('plain'), 'as it is', type)).toEqual({
        status: 200,
        body: [{ path: '/home/user/plain', name: 'plain', type: 'file' }],
      });
      expect(await post('/files', 'x', type)).toMatchObject({
        status: 400,
        body: { code: 400, message: 'path query parameter is required for raw body upload' },
      });
      expect((await post(at('zipped'), gzipSync('unzipped'), { ...type, 'content-encoding': 'gzip' })).status).toBe(
        200,
      );
      expect(await read('zipped')).toBe('unzipped');
    });

    it('refuses other types, other encodings and bodies that do not unpack', async () => {
      for (const contentType of ['text/plain', 'application/json'])
        expect(await post(at('x'), '{}', { 'content-type': contentType })).toMatchObject({
          status: 400,
          body: { message: expect.stringMatching(/^unsupported content type: /) },
        });
      const type = { 'content-type': 'application/octet-stream' };
      expect((await post(at('x'), 'x', { ...type, 'content-encoding': 'br' })).status).toBe(400);
      expect((await post(at('x'), 'not gzip', { ...type, 'content-encoding': 'gzip' })).status).toBe(400);
      const cut = gzipSync(randomBytes(100_000)).subarray(0, 50_000);
      expect((await post(at('x'), cut, { ...type, 'content-encoding': 'gzip' })).status).toBe(400);
      expect(await sandbox().goesOn()).toBe(true);
    });

    it('keeps metadata of headers within limits', async () => {
      const type = { 'content-type': 'application/octet-stream' };
      const answer = await post(at('tagged'), 'x', { ...type, 'X-Metadata-Kind': 'One Two', 'x-metadata-a-b': 'c' });
      expect(answer.body).toMatchObject([{ metadata: { kind: 'One Two', 'a-b': 'c' } }]);
      const { entry } = (await sandbox().ask('filesystem.Filesystem/Stat', { path: 'tagged' })) as { entry: Json };
      expect(entry['metadata']).toEqual({ kind: 'One Two', 'a-b': 'c' });
      expect((await post(at('tagged'), 'x', { ...type, [`x-metadata-${'k'.repeat(247)}`]: 'v' })).status).toBe(400);
      expect((await post(at('tagged'), 'x', { ...type, 'x-metadata-k': 'v'.repeat(4096) })).status).toBe(400);
      expect((await post(at('tagged'), 'x', { ...type, 'x-metadata-k': 'caf\u00e9' })).status).toBe(400);
      expect((await post(at('tagged'), 'x', { ...type, [`x-metadata-${'k'.repeat(200)}`]: 'v' })).status).toBe(200);
    });

    it('writes nothing of an upload whose client leaves, and goes on', async () => {
      const outgoing = http.request(`${sandbox().service.url}${at('half')}`, {
        method: 'POST',
        headers: { ...sandbox().headers, 'content-type': 'application/octet-stream', 'content-length': 10_000_000 },
      });
      outgoing.on('error', () => undefined);
      outgoing.write(randomBytes(2_000_000));
      await new Promise((resolve) => setTimeout(resolve, 300));
      outgoing.destroy();
      expect(await sandbox().goesOn()).toBe(true);
      expect((await post(at('half'), 'whole', { 'content-type': 'application/octet-stream' })).status).toBe(200);
      expect(await read('half')).toBe('whole');
    });

    it('keeps the mode of a file that was there and gives it to the user', async () => {
      await sandbox().run(
        'echo old > /home/user/moded; chmod 751 /home/user/moded; sudo chown root:root /home/user/moded',
      );
      await sandbox().write('/home/user/moded', 'new');
      expect((await sandbox().run('stat -c "%U %a" /home/user/moded')).stdout).toBe('user 751\n');
    });
  });

  describe('POST /files/compose', () => {
    const compose = (body: unknown) =>
      post('/files/compose', typeof body === 'string' ? body : JSON.stringify(body), {
        'content-type': 'application/json',
      });
    const parts = async (...names: string[]) => {
      for (const name of names) await sandbox().write(`/home/user/parts/${name}`, `<${name}>`);
      return names.map((name) => `/home/user/parts/${name}`);
    };

    it('joins files in order, removes them and tells the result', async () => {
      const sources = await parts('b', 'a', 'c');
      const answer = await compose({ source_paths: sources, destination: 'joined/whole.txt' });
      expect(answer).toEqual({
        status: 200,
        body: { path: '/home/user/joined/whole.txt', name: 'whole.txt', type: 'file' },
      });
      expect(await (await get('joined/whole.txt')).text()).toBe('<b><a><c>');
      expect((await sandbox().run('ls /home/user/parts; stat -c %U /home/user/joined/whole.txt')).stdout).toBe(
        'user\n',
      );
    });

    it('replaces what is at the destination, as the user who is named', async () => {
      await sandbox().write('/home/user/replaced', 'old');
      const [one] = await parts('one');
      const answer = await compose({ source_paths: [one], destination: '/home/user/replaced', username: 'root' });
      expect(answer.status).toBe(200);
      expect((await sandbox().run('cat /home/user/replaced; stat -c %U /home/user/replaced')).stdout).toBe(
        '<one>root\n',
      );
    });

    it('joins large files unharmed', async () => {
      const pieces = [randomBytes(3_000_000), Buffer.alloc(0), randomBytes(2_000_001)];
      const sources = pieces.map((_, index) => `/home/user/parts/large-${index}`);
      for (const [index, piece] of pieces.entries()) await sandbox().write(sources[index] as string, piece);
      expect((await compose({ source_paths: sources, destination: 'large-whole' })).status).toBe(200);
      const whole = Buffer.from(await (await get('large-whole')).arrayBuffer());
      expect(whole.equals(Buffer.concat(pieces))).toBe(true);
    });

    it('changes nothing when it fails', async () => {
      await sandbox().write('/home/user/kept', 'kept');
      const [one] = await parts('one');
      const missing = await compose({ source_paths: [one, '/home/user/parts/none'], destination: '/home/user/kept' });
      expect(missing).toMatchObject({
        status: 404,
        body: { code: 404, message: 'source file not found: /home/user/parts/none' },
      });
      expect(await (await get('kept')).text()).toBe('kept');
      expect(await (await get('parts/one')).text()).toBe('<one>');
    });

    it.each([
      ['no sources', { source_paths: [], destination: 'x' }],
      ['no destination', { source_paths: ['alphabet.txt'], destination: '' }],
      ['nothing', {}],
      ['a destination that is a source', { source_paths: ['alphabet.txt'], destination: 'alphabet.txt' }],
      ['the same by another path', { source_paths: ['alphabet.txt'], destination: '/home/user/./alphabet.txt' }],
      ['a directory as source', { source_paths: ['/home/user'], destination: 'x' }],
      ['a device as source', { source_paths: ['/dev/zero'], destination: 'x' }],
      ['a number', { source_paths: [5], destination: 'x' }],
      ['a list', []],
      ['no JSON', '{"source_paths"'],
    ])('refuses %s', async (_name, body) => {
      const answer = await compose(body);
      expect(answer.status).toBe(400);
      expect(answer.body).toMatchObject({ code: 400, message: expect.any(String) });
      expect(await (await get('alphabet.txt')).text()).toBe(ALPHABET);
    });

    it('refuses a user who is not there', async () => {
      const [one] = await parts('one');
      expect((await compose({ source_paths: [one], destination: 'x', username: 'nobody-here' })).status).toBe(401);
    });
  });
});
