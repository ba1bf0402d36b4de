import { expect, test } from 'vitest';
import { isBrowserNavigation, portNotOpen, renderAnswer, sandboxNotFound } from './sandbox-answers.ts';

const browser = { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0', accept: 'text/html' };

test('programs get JSON whose code is the status', () => {
  const { body, headers } = renderAnswer(portNotOpen('iabc', 3000), { 'user-agent': 'node' });
  expect(headers['content-type']).toBe('application/json; charset=utf-8');
  expect(JSON.parse(body.toString())).toEqual({
    sandboxId: 'iabc',
    message: 'The sandbox is running but port is not open',
    port: 3000,
    code: 502,
  });
});

test('a person with a browser gets a page, without a way to inject markup', () => {
  const { body, headers } = renderAnswer(sandboxNotFound('<b>'), browser);
  expect(headers['content-type']).toBe('text/html; charset=utf-8');
  expect(body.toString()).toContain('The sandbox was not found');
  expect(body.toString()).not.toContain('<b>');
});

test.each([
  [{ ...browser, accept: 'application/json' }],
  [{ ...browser, 'sec-fetch-mode': 'cors' }],
  [{ ...browser, 'sec-fetch-mode': 'websocket' }],
  [{ ...browser, 'x-requested-with': 'XMLHttpRequest' }],
  [{ 'user-agent': 'curl/8' }],
  [{}],
])('not a navigation: %o', (headers) => {
  expect(isBrowserNavigation(headers)).toBe(false);
});

test('a navigation', () => {
  expect(isBrowserNavigation({ ...browser, 'sec-fetch-mode': 'navigate' })).toBe(true);
});
