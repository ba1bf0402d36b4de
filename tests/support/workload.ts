import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Sandbox } from 'e2b';
import { expect } from 'vitest';
import type { TestService } from './service.ts';

const program = readFileSync(path.join(import.meta.dirname, 'workload.py'), 'utf8');
const PORT = 8000;

interface Answer {
  rounds: number;
  pid: number;
  wrong?: string[];
}

/** A program inside a sandbox that changes files and memory round by round, and knows what they must hold. */
export class Workload {
  readonly #service: TestService;
  readonly sandboxId: string;
  /** Rounds that the program is known to have made. */
  rounds = 0;
  /** Its process: another one means that memory was lost. */
  pid = 0;

  private constructor(service: TestService, sandboxId: string) {
    this.#service = service;
    this.sandboxId = sandboxId;
  }

  static async start(service: TestService, sandbox: Sandbox): Promise<Workload> {
    await sandbox.files.write('/home/user/workload.py', program);
    await sandbox.commands.run('exec python3 /home/user/workload.py', { background: true, timeoutMs: 0 });
    const workload = new Workload(service, sandbox.sandboxId);
    workload.pid = (await workload.#ask('/check', 20_000)).pid;
    return workload;
  }

  /** The same program in a copy of its sandbox. */
  copiedTo(sandboxId: string): Workload {
    const copy = new Workload(this.#service, sandboxId);
    copy.rounds = this.rounds;
    copy.pid = this.pid;
    return copy;
  }

  async step(times = 1): Promise<void> {
    for (let time = 0; time < times; time++) {
      this.rounds++;
      expect(await this.#ask('/step')).toEqual({ rounds: this.rounds, pid: this.pid });
    }
  }

  /** The program answers, and is where it was; nothing is compared. */
  async answers(): Promise<void> {
    expect(await this.#ask('/')).toEqual({ rounds: this.rounds, pid: this.pid });
  }

  /** Every file and the memory are as the program left them, and it is the same program. */
  async check(): Promise<void> {
    expect(await this.#ask('/check')).toEqual({ rounds: this.rounds, pid: this.pid, wrong: [] });
  }

  async #ask(what: string, patienceMs = 10_000): Promise<Answer> {
    const giveUpAt = Date.now() + patienceMs;
    for (;;) {
      const response = await this.#service.fetchInside(this.sandboxId, what, {}, PORT);
      if (response.ok) return (await response.json()) as Answer;
      const text = await response.text();
      // Only while it starts to listen may it be asked twice: a step must happen once.
      if (this.pid !== 0 || Date.now() > giveUpAt) throw new Error(`${what}: ${response.status} ${text}`);
      await delay(50);
    }
  }
}
