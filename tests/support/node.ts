import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { newOperationId } from '../../src/agent/client.ts';
import type { Agent } from '../../src/agent/contract.ts';
import { loadConfig, type RuntimeName } from '../../src/core/config.ts';
import { newSandboxId } from '../../src/core/ids.ts';
import { Log } from '../../src/core/log.ts';
import { type CreateOnNode, Node } from '../../src/node/node.ts';
import { locateArtifacts } from '../../src/setup/artifacts.ts';
import { baseLayerName } from '../../src/templates/builtin.ts';

/** A node on a state directory of the test's own. */
export interface TestNode {
  node: Node;
  stateDir: string;
  /** Stops the node and starts another on the same state, as a restart of the service does. */
  restart(): Promise<Node>;
  /** Destroys everything and removes the state directory. */
  dispose(): Promise<void>;
}

export const RUNTIMES: RuntimeName[] = ['gvisor', 'container'];

export async function startTestNode(options: { warmPool?: number } = {}): Promise<TestNode> {
  const stateDir = mkdtempSync(path.join(tmpdir(), 'sandbar-node-'));
  const open = async () => {
    const artifacts = locateArtifacts(loadConfig(process.env));
    const node = new Node(
      {
        stateDir,
        networkRange: undefined,
        warmPool: { least: 1, most: options.warmPool ?? 0 },
        programs: {
          agent: artifacts.agent,
          hostHelper: artifacts.hostHelper,
          runsc: artifacts.runsc?.path,
          crun: artifacts.crun,
        },
      },
      new Log('error'),
    );
    await node.layers.import(baseLayerName(artifacts.baseTemplate.key), artifacts.baseTemplate.rootfs);
    await node.start();
    return node;
  };
  const test: TestNode = {
    node: await open(),
    stateDir,
    async restart() {
      await test.node.stop();
      test.node = await open();
      return test.node;
    },
    async dispose() {
      for (const id of test.node.list().keys()) await test.node.destroy(id);
      await test.node.stop();
      rmSync(stateDir, { recursive: true, force: true });
    },
  };
  return test;
}

/** A sandbox of the base template with small limits; `change` sets what a test is about. */
export function sandboxRequest(runtime: RuntimeName, change: Partial<CreateOnNode['resources']> = {}): CreateOnNode {
  const { baseTemplate } = locateArtifacts(loadConfig(process.env));
  return {
    sandboxId: newSandboxId(),
    runtime,
    templateId: 'base',
    buildId: 'base',
    layers: [baseLayerName(baseTemplate.key)],
    resources: { cpuCount: 1, memoryMb: 256, diskSizeMb: 512, pidsMax: 256, ...change },
    guest: { env: {}, defaultUser: 'user', defaultWorkdir: '/home/user' },
  };
}

/** Runs a shell command through the agent to its end. */
export async function runInside(
  agent: Agent,
  command: string,
  user = 'user',
): Promise<{ exitCode: number; signal: number; output: string }> {
  const subscriber = 1 + Math.floor(Math.random() * 1e9);
  const pid = await agent.start({
    user,
    cmd: '/bin/bash',
    args: ['-c', command],
    env: {},
    cwd: '',
    stdin: false,
    operationId: newOperationId(),
    subscriber,
  });
  let output = '';
  let offset = 0;
  for (;;) {
    const batch = await agent.readOutput({
      process: { pid },
      subscriber,
      offset,
      length: 0,
      waitMs: 10_000,
      replay: false,
    });
    for (const chunk of batch.chunks) output += chunk.data.toString('utf8');
    offset = batch.nextOffset;
    if (batch.end !== undefined) return { exitCode: batch.end.exitCode, signal: batch.end.signal, output };
  }
}
