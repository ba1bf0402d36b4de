import { createHash, createHmac } from 'node:crypto';
import { messageOf, SandbarError } from '../core/errors.ts';
import type { RegistryCredentials } from './contract.ts';

export interface Login {
  username: string;
  password: string;
}

const TIMEOUT_MS = 30_000;

/** What a registry takes as user and password. Amazon's are asked for; Google's are the account itself. */
export async function loginOf(credentials: RegistryCredentials, signal: AbortSignal): Promise<Login> {
  switch (credentials.type) {
    case 'registry':
      return { username: credentials.username, password: credentials.password };
    case 'gcp':
      return { username: '_json_key', password: credentials.serviceAccountJson };
    case 'aws':
      return amazonLogin(credentials, signal);
  }
}

async function amazonLogin(
  { awsAccessKeyId, awsSecretAccessKey, awsRegion }: Extract<RegistryCredentials, { type: 'aws' }>,
  signal: AbortSignal,
): Promise<Login> {
  if (!/^[a-z0-9-]+$/.test(awsRegion)) throw new SandbarError('invalid', `'${awsRegion}' is not a region of AWS`);
  const host = `api.ecr.${awsRegion}.amazonaws.com`;
  const body = '{}';
  const headers = {
    'content-type': 'application/x-amz-json-1.1',
    host,
    'x-amz-date': amazonDate(new Date()),
    'x-amz-target': 'AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken',
  };
  const authorization = signAmazonRequest(
    { method: 'POST', path: '/', query: '', headers, body },
    { accessKeyId: awsAccessKeyId, secretAccessKey: awsSecretAccessKey, region: awsRegion, service: 'ecr' },
  );
  try {
    const response = await fetch(`https://${host}/`, {
      method: 'POST',
      headers: { ...headers, authorization },
      body,
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    const answer = (await response.json()) as {
      authorizationData?: { authorizationToken: string }[];
      message?: string;
    };
    const token = answer.authorizationData?.[0]?.authorizationToken;
    if (token === undefined) throw new Error(answer.message ?? `status ${response.status}`);
    const [username = '', ...password] = Buffer.from(token, 'base64').toString('utf8').split(':');
    return { username, password: password.join(':') };
  } catch (error) {
    signal.throwIfAborted();
    throw new SandbarError('invalid', `AWS gives no login for its registry: ${messageOf(error)}`, { cause: error });
  }
}

interface AmazonRequest {
  method: string;
  path: string;
  /** Encoded and sorted. */
  query: string;
  /** Lower-case names; `host` and `x-amz-date` among them. */
  headers: Record<string, string>;
  body: string;
}

/** The Authorization header of a request to AWS, signature version 4. */
export function signAmazonRequest(
  { method, path, query, headers, body }: AmazonRequest,
  key: { accessKeyId: string; secretAccessKey: string; region: string; service: string },
): string {
  const names = Object.keys(headers).sort();
  const signedHeaders = names.join(';');
  const canonical = [
    method,
    path,
    query,
    ...names.map((name) => `${name}:${headers[name]?.trim()}`),
    '',
    signedHeaders,
    sha256(body),
  ].join('\n');
  const date = headers['x-amz-date'] ?? '';
  const day = date.slice(0, 8);
  const scope = `${day}/${key.region}/${key.service}/aws4_request`;
  const toSign = ['AWS4-HMAC-SHA256', date, scope, sha256(canonical)].join('\n');
  const signingKey = [day, key.region, key.service, 'aws4_request'].reduce<Buffer>(
    (secret, word) => hmac(secret, word),
    Buffer.from(`AWS4${key.secretAccessKey}`),
  );
  const signature = hmac(signingKey, toSign).toString('hex');
  return `AWS4-HMAC-SHA256 Credential=${key.accessKeyId}/${scope}, SignedHeaders=${signedHeaders}, Signature=${signature}`;
}

function amazonDate(date: Date): string {
  return date.toISOString().replace(/[-:]|\.\d{3}/g, '');
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
