import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { InvalidArgumentError, Sandbox } from 'e2b';
import { beforeAll, expect, it } from 'vitest';
import { describeOnRuntimes, type TestService } from '../support/service.ts';

interface Answer {
  status: number;
  body: string;
}

/**
 * What a browser or curl would do with a signed URL, whose host is `49983-{id}.{domain}`: the name is not in any DNS here, so the
 * connection goes to the service and the name into the Host header.
 */
function fetchUrl(service: TestService, url: string, init: { method?: string; body?: FormData } = {}): Promise<Answer> {
  const { host, pathname, search } = new URL(url);
  const request = new Request('http://unused', { method: init.method ?? 'GET', ...(init.body && { body: init.body }) });
  return new Promise((resolve, reject) => {
    const outgoing = http.request(
      {
        host: '127.0.0.1',
        port: service.port,
        path: `${pathname}${search}`,
        method: request.method,
        headers: { host, ...Object.fromEntries(request.headers) },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
      },
    );
    outgoing.on('error', reject);
    request.arrayBuffer().then((body) => outgoing.end(Buffer.from(body)), reject);
  });
}

function formOf(content: string, filename: string): FormData {
  const form = new FormData();
  form.append('file', new Blob([content]), filename);
  return form;
}

describeOnRuntimes('signed URLs', (service) => {
  let sandbox: Sandbox;
  beforeAll(async () => {
    // Without sandboxUrl the SDK makes the URL from the sandbox's own host; the API alone is called.
    const { apiUrl, apiKey, domain } = service().connection;
    sandbox = await Sandbox.create({ apiUrl, apiKey, domain });
  });
  const fetchSigned = (url: string, init?: Parameters<typeof fetchUrl>[2]) => fetchUrl(service(), url, init);

  it('upload and download a file without any header', async () => {
    const upload = await sandbox.uploadUrl('dir/note.txt');
    expect(new URL(upload).host).toBe(`49983-${sandbox.sandboxId}.${service().domain}`);
    const answer = await fetchSigned(upload, { method: 'POST', body: formOf('signed', 'ignored') });
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.body)).toEqual([{ path: '/home/user/dir/note.txt', name: 'note.txt', type: 'file' }]);
    const download = await sandbox.downloadUrl('dir/note.txt');
    expect(await fetchSigned(download)).toEqual({ status: 200, body: 'signed' });
  });

  it('act as the user they were made for', async () => {
    const upload = await sandbox.uploadUrl('of-root', { user: 'root' });
    const answer = await fetchSigned(upload, { method: 'POST', body: formOf('r', 'x') });
    expect(JSON.parse(answer.body)[0].path).toBe('/root/of-root');
    expect((await fetchSigned(await sandbox.downloadUrl('/root/of-root', { user: 'root' }))).body).toBe('r');
    expect((await fetchSigned(await sandbox.downloadUrl('of-root'))).status).toBe(404);
  });

  it('take names as they are', async () => {
    for (const path of ['/home/user/with space & ü 漢 ?=%.txt', '~/tilde', './a/../b']) {
      const answer = await fetchSigned(await sandbox.uploadUrl(path), { method: 'POST', body: formOf(path, 'x') });
      expect(answer.status).toBe(200);
      expect(await fetchSigned(await sandbox.downloadUrl(path))).toEqual({ status: 200, body: path });
    }
  });

  it('upload to the name in the form when they name no path', async () => {
    const url = await sandbox.uploadUrl();
    const answer = await fetchSigned(url, { method: 'POST', body: formOf('x', '/home/user/from/form') });
    expect(JSON.parse(answer.body)[0].path).toBe('/home/user/from/form');
  });

  it('end when they expire', async () => {
    const url = await sandbox.downloadUrl('dir/note.txt', { useSignatureExpiration: 1 });
    expect((await fetchSigned(url)).status).toBe(200);
    await sleep(2200);
    const late = await fetchSigned(url);
    expect(late.status).toBe(401);
    expect(JSON.parse(late.body)).toEqual({ code: 401, message: 'signature is already expired' });
    const longer = await sandbox.downloadUrl('dir/note.txt', { useSignatureExpiration: 120 });
    expect((await fetchSigned(longer)).status).toBe(200);
  });

  it('open nothing else', async () => {
    const url = new URL(await sandbox.downloadUrl('dir/note.txt', { useSignatureExpiration: 120 }));
    const changed = (change: (parameters: URLSearchParams) => void) => {
      const other = new URL(url);
      change(other.searchParams);
      return fetchSigned(other.toString());
    };
    const invalid = { code: 401, message: 'invalid signature' };
    for (const change of [
      (parameters: URLSearchParams) => parameters.set('path', '/etc/shadow'),
      (parameters: URLSearchParams) => parameters.set('path', '/home/user/dir/note.txt'),
      (parameters: URLSearchParams) => parameters.set('username', 'root'),
      (parameters: URLSearchParams) => parameters.set('signature_expiration', '99999999999'),
      (parameters: URLSearchParams) => parameters.delete('signature_expiration'),
      (parameters: URLSearchParams) => parameters.set('signature', 'v1_nonsense'),
    ]) {
      const answer = await changed(change);
      expect(answer.status).toBe(401);
      expect(JSON.parse(answer.body)).toEqual(invalid);
    }
    const without = await changed((parameters) => parameters.delete('signature'));
    expect(JSON.parse(without.body)).toEqual({ code: 401, message: 'missing signature query parameter' });
    // A signature for reading does not write.
    const write = await fetchSigned(url.toString(), { method: 'POST', body: formOf('x', 'x') });
    expect(JSON.parse(write.body)).toEqual(invalid);
  });

  it('are refused by the SDK for a sandbox without a token', async () => {
    const { apiUrl, apiKey, domain } = service().connection;
    const created = await service().fetch('/sandboxes', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ templateID: 'base', timeout: 60, secure: false }),
    });
    const { sandboxID } = (await created.json()) as { sandboxID: string };
    const open = await Sandbox.connect(sandboxID, { apiUrl, apiKey, domain });
    await expect(open.downloadUrl('x', { useSignatureExpiration: 10 })).rejects.toThrow(InvalidArgumentError);
    expect((await fetchSigned(await open.downloadUrl('/etc/hostname'))).status).toBe(200);
  });
});
