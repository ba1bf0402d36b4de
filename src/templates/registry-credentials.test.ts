import { expect, it } from 'vitest';
import { loginOf, signAmazonRequest } from './registry-credentials.ts';

it("signs as the example in AWS's documentation", () => {
  const authorization = signAmazonRequest(
    {
      method: 'GET',
      path: '/',
      query: 'Action=ListUsers&Version=2010-05-08',
      headers: {
        'content-type': 'application/x-www-form-urlencoded; charset=utf-8',
        host: 'iam.amazonaws.com',
        'x-amz-date': '20150830T123600Z',
      },
      body: '',
    },
    {
      accessKeyId: 'AKIDEXAMPLE',
      secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
      region: 'us-east-1',
      service: 'iam',
    },
  );
  expect(authorization).toBe(
    'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7',
  );
});

it("gives Google's registry the account as the password", async () => {
  const login = await loginOf({ type: 'gcp', serviceAccountJson: '{"a":1}' }, AbortSignal.timeout(1000));
  expect(login).toEqual({ username: '_json_key', password: '{"a":1}' });
});
