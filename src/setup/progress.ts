/** Tells the person in front of the terminal what set-up does: each step announced, long ones with the seconds they took. */
export class Progress {
  readonly #out: NodeJS.WritableStream & { isTTY?: boolean };
  readonly #lineEveryMs: number;

  /** `lineEveryMs`: how often a long step says something where the output is no terminal. */
  constructor(out: NodeJS.WritableStream & { isTTY?: boolean } = process.stdout, lineEveryMs = 10_000) {
    this.#out = out;
    this.#lineEveryMs = lineEveryMs;
  }

  announce(text: string): void {
    this.#out.write(`==> ${text}\n`);
  }

  note(text: string): void {
    this.#out.write(`    ${text}\n`);
  }

  /** Announces a long step and shows elapsed seconds with the latest thing the step said. */
  async during<T>(what: string, task: (say: (text: string) => void) => Promise<T>): Promise<T> {
    this.announce(what);
    const startedAt = Date.now();
    const seconds = () => `${Math.round((Date.now() - startedAt) / 1000)} s`;
    let latest = '';
    const line = () => `    ${seconds()}${latest && `  ${latest.slice(0, 100)}`}`;
    const live = this.#out.isTTY === true;
    const timer = setInterval(
      () => {
        this.#out.write(live ? `\r\x1b[K${line()}` : `${line()}\n`);
      },
      live ? 500 : this.#lineEveryMs,
    );
    try {
      const result = await task((text) => {
        latest = text;
      });
      if (live) this.#out.write('\r\x1b[K');
      this.note(`done in ${seconds()}`);
      return result;
    } catch (error) {
      if (live) this.#out.write('\r\x1b[K');
      throw error;
    } finally {
      clearInterval(timer);
    }
  }
}
