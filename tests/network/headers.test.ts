import { Secret } from 'e2b';
import { expect, it } from 'vitest';
import { runCommand } from '../../src/core/command.ts';
import { TestInternet } from '../support/internet.ts';
import { describeInWorlds, type Echo, refused } from './world.ts';

const { allowed } = TestInternet;
const SECRET = 'zq7-not-a-word-anywhere';
const rule = (headers: Record<string, string>) => [{ transform: { headers } }];

describeInWorlds('header rules', (world) => {
  const echoOf = (text: string) => JSON.parse(text) as Echo;

  it('set headers over HTTP and HTTPS, for their names alone, with every usual client', async () => {
    const probed = await world().create({
      network: { rules: { 'ruled.test': rule({ 'X-Key': 'abc', 'User-Agent': 'ruled' }) } },
    });
    const clients = {
      curl: 'curl -sS -A mine https://ruled.test/a',
      http: 'curl -sS -A mine http://ruled.test/a',
      python: `python3 -c "import urllib.request as u; print(u.urlopen('https://ruled.test/a').read().decode())"`,
      pip: `python3 -c "import pip._vendor.requests as r; print(r.get('https://ruled.test/a').text)"`,
      node: `node -e "fetch('https://ruled.test/a').then(r => r.text()).then(console.log)"`,
    };
    for (const [name, command] of Object.entries(clients)) {
      const { stdout, stderr } = await probed.run(command);
      expect(stdout, `${name}: ${stderr}`).toContain('{');
      expect(echoOf(stdout), name).toMatchObject({
        at: allowed,
        url: '/a',
        headers: { 'x-key': 'abc', 'user-agent': 'ruled', host: 'ruled.test' },
      });
    }
    // Another name is shown the certificate of its real server, which this sandbox has no reason to trust.
    const direct = await probed.run('curl -sS https://allowed.test/');
    expect(direct.exitCode).toBe(60);
    expect((await probed.run('curl -sSk https://allowed.test/')).stdout).not.toContain('x-key');
    await probed.sandbox.kill();
  });

  it('the authority is in a sandbox only when a rule needs it', async () => {
    const probed = await world().create();
    const trusted = 'grep -c BEGIN /etc/ssl/certs/ca-certificates.crt; ls /usr/local/share/ca-certificates';
    const before = await probed.run(trusted);
    expect(before.stdout).not.toContain('sandbar');
    await probed.sandbox.updateNetwork({ rules: { 'ruled.test': rule({ 'X-Key': 'late' }) } });
    expect(echoOf((await probed.run('curl -sS https://ruled.test/')).stdout).headers).toMatchObject({
      'x-key': 'late',
    });
    await probed.sandbox.updateNetwork({});
    expect((await probed.run('curl -sSk https://ruled.test/')).stdout).not.toContain('x-key');
    await probed.sandbox.kill();
  });

  it('stream both ways, keep a connection and pass upgrades', async () => {
    const probed = await world().create({ network: { rules: { '*.ruled.test': rule({ 'X-Key': 'abc' }) } } });
    const size = 20_000_000;
    const sent = await probed.run(
      `head -c ${size} /dev/zero | curl -sS -T - -H 'Expect:' -X POST https://a.ruled.test/sink`,
    );
    expect(sent.stdout).toBe(String(size));
    const received = await probed.run(`curl -sS 'https://a.ruled.test/bytes?n=${size}' | wc -c`);
    expect(Number(received.stdout)).toBe(size);
    const twice = await probed.run(
      "curl -sS -w '%{num_connects} ' https://a.ruled.test/1 https://a.ruled.test/2 -o /dev/null -o /dev/null",
    );
    expect(twice.stdout.trim()).toBe('1 0');
    const upgraded = await probed.run(
      `python3 -c "
import socket, ssl
s = ssl.create_default_context().wrap_socket(socket.create_connection(('a.ruled.test', 443), 5), server_hostname='a.ruled.test')
s.sendall(b'GET /up HTTP/1.1\\r\\nHost: a.ruled.test\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n')
head = s.recv(1000)
s.sendall(b'over there')
print(head.split()[1].decode(), s.recv(100).decode())"`,
    );
    expect(upgraded.stdout.trim(), upgraded.stderr).toBe('101 over there');
    await probed.sandbox.kill();
  });

  it('do not open anything, and refuse another host on their connection', async () => {
    const rules = { 'ruled.test': rule({ 'X-Key': 'abc' }) };
    const closed = await world().create({ network: { rules, denyOut: ['0.0.0.0/0'] } });
    expect(await closed.tryOne('http', allowed, 80, 'ruled.test')).toMatch(refused);
    await closed.sandbox.updateNetwork({ rules, allowOut: ['ruled.test'], denyOut: ['0.0.0.0/0'] });
    expect(await closed.tryOne('https', allowed, 443, 'ruled.test', 0, 'ruled.test')).toMatchObject({ at: allowed });
    expect(await closed.tryOne('https', allowed, 443, 'ruled.test', 0, 'other.test')).toMatch(/HTTP\/1.1 421/);
    await closed.sandbox.kill();
  });

  it('carry secrets that never enter the sandbox, in their present version', async () => {
    const { service } = world();
    const name = 'api-key';
    await Secret.create(name, `${SECRET}-one`, service.connection);
    const probed = await world().create({
      network: {
        rules: {
          'ruled.test': rule({ Authorization: `Bearer ${Secret.fill(name)}` }),
          'a.ruled.test': rule({ 'X-None': Secret.fill('nothing-here') }),
        },
      },
    });
    const authorization = async () =>
      echoOf((await probed.run('curl -sS https://ruled.test/')).stdout).headers['authorization'];
    expect(await authorization()).toBe(`Bearer ${SECRET}-one`);
    const missing = await probed.run("curl -sS -w ' %{http_code}' https://a.ruled.test/");
    expect(missing.stdout).toBe('sandbar: the secret nothing-here is not available\n 502');
    await Secret.update(name, `${SECRET}-two`, service.connection);
    await expect.poll(authorization).toBe(`Bearer ${SECRET}-two`);
    await service.restart();
    expect(await authorization()).toBe(`Bearer ${SECRET}-two`);
    await probed.sandbox.pause();
    await probed.sandbox.connect();
    expect(await authorization()).toBe(`Bearer ${SECRET}-two`);
    const leaked = await probed.run(`grep -rls ${SECRET} /etc /home /usr/local /proc/*/environ /tmp 2>/dev/null`);
    expect(leaked.stdout).toBe('');
    // Nor does it lie in clear on the machine. (The sandbox's own memory has seen it here: the tests' server echoes what it gets.)
    const kept = await runCommand(
      'grep',
      ['-rls', '--exclude-dir=layers', '--exclude=pages.img', SECRET, service.stateDir],
      {
        okStatuses: [0, 1],
      },
    );
    expect(kept.stdout).toBe('');
    expect(JSON.stringify((await probed.sandbox.getInfo()).network)).not.toContain(SECRET);
    await Secret.destroy(name, service.connection);
    await expect
      .poll(async () => (await probed.run('curl -sS https://ruled.test/')).stdout)
      .toContain('is not available');
    await probed.sandbox.kill();
  });
});
