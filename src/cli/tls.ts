import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Authority } from '../core/certificates.ts';
import type { Config } from '../core/config.ts';

const SYSTEM_BUNDLE = '/etc/ssl/certs/ca-certificates.crt';

export interface TlsFiles {
  /** The authority's certificate: what clients are told to trust. */
  authority: string;
  /** The same together with the authorities that the machine trusts already, for programs that read one list only. */
  bundle: string;
  certificate: string;
  key: string;
}

/** `sandbar tls`: an authority of this installation's own, a certificate by it for the sandbox domain, and what to do with both. */
export async function runTls(config: Pick<Config, 'stateDir' | 'domain' | 'port'>): Promise<number> {
  const files = await makeTlsFiles(config);
  console.log(instructions(config, files));
  return 0;
}

/** The authority stays the same when there is one; the certificate is made anew. */
export async function makeTlsFiles({ stateDir, domain }: Pick<Config, 'stateDir' | 'domain'>): Promise<TlsFiles> {
  const directory = path.join(stateDir, 'tls');
  await mkdir(stateDir, { recursive: true });
  const authority = await Authority.open(directory, 'Sandbar on this machine');
  const name = nameOf(domain);
  const { cert, key } = await authority.issue([`*.${name}`, name, 'localhost']);
  const files = {
    authority: authority.certificateFile,
    bundle: path.join(directory, 'bundle.pem'),
    certificate: path.join(directory, 'cert.pem'),
    key: path.join(directory, 'key.pem'),
  };
  const known = await readFile(SYSTEM_BUNDLE, 'utf8').catch(() => '');
  await writeFile(files.bundle, `${known}\n${authority.certificate}`);
  await writeFile(files.certificate, cert);
  await writeFile(files.key, key, { mode: 0o600 });
  return files;
}

function instructions({ domain, port }: Pick<Config, 'domain' | 'port'>, files: TlsFiles): string {
  const name = nameOf(domain);
  const withPort = domain.includes(':') || port === 443 ? domain : `${domain}:${port}`;
  return `Made a certificate for *.${name}, signed by an authority of this installation's own.

1. Serve with it: start the service with
     export SANDBAR_DOMAIN=${domain}
     export SANDBAR_TLS_CERT=${files.certificate}
     export SANDBAR_TLS_KEY=${files.key}

2. Trust the authority (copy ${files.authority} to other machines):
     programs     export NODE_EXTRA_CA_CERTS=${files.authority}     # JavaScript
                  export SSL_CERT_FILE=${files.bundle}     # Python, curl, Go
     Debian       cp ${files.authority} /usr/local/share/ca-certificates/sandbar.crt && update-ca-certificates
     Chromium     certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n sandbar -i ${files.authority}

3. Lead the domain here: every name below ${name} has to resolve to this machine.
     dnsmasq      echo address=/${name}/127.0.0.1 > /etc/dnsmasq.d/sandbar.conf    # or this machine's address
     one sandbox  echo 127.0.0.1 api.${name} 49983-SANDBOX_ID.${name} 3000-SANDBOX_ID.${name} >> /etc/hosts

4. Use it, without E2B_API_URL and E2B_SANDBOX_URL:
     export E2B_DOMAIN=${withPort}
     export E2B_API_KEY=...`;
}

function nameOf(domain: string): string {
  return domain.split(':', 1)[0] ?? domain;
}
