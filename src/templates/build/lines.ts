import { StringDecoder } from 'node:string_decoder';

const LONGEST = 4096;

/** Cuts output into lines. Of what a carriage return overwrites, as progress bars do, only the last state is a line. */
export class Lines {
  readonly #decoder = new StringDecoder('utf8');
  readonly #onLine: (line: string) => void;
  #rest = '';

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(chunk: Buffer): void {
    this.#rest += this.#decoder.write(chunk);
    const lines = this.#rest.split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#emit(line);
    while (this.#rest.length > LONGEST) {
      this.#emit(this.#rest.slice(0, LONGEST));
      this.#rest = this.#rest.slice(LONGEST);
    }
  }

  end(): void {
    const last = this.#rest + this.#decoder.end();
    this.#rest = '';
    if (last !== '') this.#emit(last);
  }

  #emit(line: string): void {
    const shown = line.replace(/\r+$/, '').split('\r').at(-1) ?? '';
    for (let at = 0; at === 0 || at < shown.length; at += LONGEST) this.#onLine(shown.slice(at, at + LONGEST));
  }
}
