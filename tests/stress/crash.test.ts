import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { expect, it } from 'vitest';
import { times } from '../support/full.ts';
import { countLeftovers } from '../support/leftovers.ts';
import { describeOnRuntimes, type TestService } from '../support/service.ts';

const CRASHES = times(3, 20);
const AT_ONCE = 10;
/** Sandboxes that are left to live on, so that there is something to lose. */
const KEPT = 8;

/** Creates, commands and kills, ten at a time, from when it is begun until it is ended; knows what must be there. */
class Load {
  /** Reported created, and nobody has asked to kill them. */
  readonly alive = new Map<string, Sandbox>();
  /** Whose mark was reported written. */
  readonly marked = new Set<string>();
  created = 0;
  readonly #service: TestService;
  #ending = false;
  #workers: Promise<void>[] = [];

  constructor(service: TestService) {
    this.#service = service;
  }

  begin(): void {
    this.#ending = false;
    this.#workers = Array.from({ length: AT_ONCE }, () => this.#work());
  }

  /** Ends all workers; what was under way when the service went has failed by then. */
  async end(): Promise<void> {
    this.#ending = true;
    await Promise.all(this.#workers);
  }

  async #work(): Promise<void> {
    while (!this.#ending) {
      try {
        await this.#oneLife();
      } catch {
        // The service is gone: the next round, after its return, tells what it has kept.
        if (!this.#ending) await sleep(20);
      }
    }
  }

  async #oneLife(): Promise<void> {
    const connection = { ...this.#service.connection, requestTimeoutMs: 60_000 };
    const sandbox = await Sandbox.create({ ...connection, timeoutMs: 3_600_000 });
    this.alive.set(sandbox.sandboxId, sandbox);
    this.created++;
    await sandbox.files.write('/home/user/mark', sandbox.sandboxId);
    this.marked.add(sandbox.sandboxId);
    if (this.alive.size <= KEPT) return;
    this.alive.delete(sandbox.sandboxId);
    await sandbox.kill();
  }
}

describeOnRuntimes('a service that is killed under load', (service, runtime) => {
  it(`${CRASHES} times: no sandbox that was reported created is lost, and nothing is leaked`, {
    timeout: 120_000 + CRASHES * 40_000,
  }, async () => {
    const load = new Load(service());
    let slowestStartMs = 0;
    for (let crash = 0; crash < CRASHES; crash++) {
      const before = load.created;
      load.begin();
      // At a random instant, but not before there is something to lose.
      while (load.created === before) await sleep(10);
      await sleep(Math.random() * 3000);
      const killed = service().kill9();
      const ended = load.end();
      await killed;
      await ended;
      const startedAt = Date.now();
      await service().start();
      slowestStartMs = Math.max(slowestStartMs, Date.now() - startedAt);

      const listed = await listAll(service());
      for (const [id, sandbox] of load.alive) {
        expect(listed, `sandbox ${id} is lost after crash ${crash + 1}`).toContain(id);
        expect(await sandbox.isRunning()).toBe(true);
        const { stdout } = await sandbox.commands.run('cat /home/user/mark || true');
        if (load.marked.has(id)) expect(stdout).toBe(id);
      }
    }
    console.log(
      `${runtime}: ${CRASHES} crashes, ${load.created} sandboxes created, slowest start ${slowestStartMs} ms`,
    );
    // What nobody knows of but the list: created, and the answer was lost. It can be killed like any other.
    await service().killAll();
    await expect.poll(async () => (await countLeftovers(service().stateDir)).directories, { timeout: 20_000 }).toBe(0);
    await service().stop();
    const left = await countLeftovers(service().stateDir);
    expect(
      Object.values(left).every((count) => count === 0),
      JSON.stringify(left),
    ).toBe(true);
  });
});

async function listAll(service: TestService): Promise<string[]> {
  const found: string[] = [];
  const paginator = Sandbox.list({ ...service.connection });
  while (paginator.hasNext) found.push(...(await paginator.nextItems()).map((info) => info.sandboxId));
  return found;
}
