import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TestInternet } from '../support/internet.ts';
import { runPython } from '../support/python.ts';
import { World } from './world.ts';

const { allowed, other } = TestInternet;
let world: World;
beforeAll(async () => {
  world = await World.make('container');
});
afterAll(async () => {
  await world?.dispose();
});

it('the Python SDK sets, changes and shows network rules', async () => {
  const script = path.join(import.meta.dirname, 'policy.py');
  const { stdout } = await runPython(script, { env: world.service.env });
  expect(JSON.parse(stdout)).toMatchObject({
    first: [[allowed, 'from-python'], [other, ''], null],
    second: [[allowed, ''], null, [allowed, '']],
    third: [null],
    shown: { deny_out: [other] },
  });
});
