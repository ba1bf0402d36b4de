// JavaScript and TypeScript: Node's own REPL without its terminal, so that variables stay and `await` works at the top.
// Arguments: the descriptor to read requests from, the descriptor to answer on; both are lines of JSON.
import fs from 'node:fs';
import { createRequire, stripTypeScriptTypes } from 'node:module';
import readline from 'node:readline';
import repl from 'node:repl';
import { PassThrough } from 'node:stream';
import util from 'node:util';

const [askedFd, sayingFd] = process.argv.slice(2).map(Number);

function say(line) {
  fs.writeSync(sayingFd, `${JSON.stringify(line)}\n`);
}

for (const stream of ['stdout', 'stderr']) {
  process[stream].write = (chunk, encoding, done) => {
    say({ type: 'output', stream, text: typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8') });
    const callback = typeof encoding === 'function' ? encoding : done;
    if (callback) process.nextTick(callback);
    return true;
  };
}

const server = repl.start({
  input: new PassThrough(),
  output: new PassThrough(),
  terminal: false,
  prompt: '',
  useGlobal: true,
  replMode: repl.REPL_MODE_SLOPPY,
});
globalThis.require = createRequire(`${process.cwd()}/`);

/** Shows a value beside the result: an object of MIME types, or anything else as text. */
globalThis.display = (value) => {
  const isBundle = value && typeof value === 'object' && Object.keys(value).every((key) => key.includes('/'));
  say({ type: 'result', main: false, data: isBundle ? value : { 'text/plain': util.inspect(value) } });
};

/** Imports stand only in modules; here they are made the calls that they come to. */
function withoutImports(code) {
  const load = (from) => `(await import(${from}))`;
  return code
    .replace(/^[ \t]*import\s+(['"][^'"]+['"])\s*;?/gm, (_, from) => `await import(${from});`)
    .replace(
      /^[ \t]*import\s+\*\s+as\s+(\w+)\s+from\s+(['"][^'"]+['"])\s*;?/gm,
      (_, name, from) => `var ${name} = ${load(from)};`,
    )
    .replace(
      /^[ \t]*import\s+(?:(\w+)\s*,?\s*)?(?:\{([^}]*)\})?\s*from\s+(['"][^'"]+['"])\s*;?/gm,
      (_, main, names, from) => {
        const parts = [];
        if (main) parts.push(`var ${main} = ${load(from)}.default;`);
        if (names) parts.push(`var {${names.replace(/\s+as\s+/g, ': ')}} = ${load(from)};`);
        return parts.join(' ');
      },
    );
}

function evaluate(code) {
  return new Promise((resolve, reject) => {
    server.eval(code, globalThis, 'code', (error, value) => (error ? reject(error) : resolve(value)));
  });
}

async function run({ code, lasting, env, typescript }) {
  Object.assign(process.env, lasting);
  const before = Object.fromEntries(Object.keys(env).map((name) => [name, process.env[name]]));
  Object.assign(process.env, env);
  try {
    const plain = typescript ? stripTypeScriptTypes(code, { mode: 'transform' }) : code;
    const value = await evaluate(`${withoutImports(plain)}\n`);
    if (value !== undefined) say({ type: 'result', main: true, data: { 'text/plain': util.inspect(value) } });
  } catch (thrown) {
    const error = thrown instanceof Error || thrown?.stack ? thrown : new Error(util.inspect(thrown));
    say({
      type: 'error',
      name: error.name ?? 'Error',
      value: String(error.message),
      traceback: String(error.stack ?? ''),
    });
  } finally {
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    say({ type: 'end' });
  }
}

process.on('uncaughtException', (error) => process.stderr.write(`${error?.stack ?? error}\n`));
process.on('unhandledRejection', (error) => process.stderr.write(`${error?.stack ?? error}\n`));
process.on('SIGINT', () => say({ type: 'end' }));

const lines = readline.createInterface({ input: fs.createReadStream('', { fd: askedFd }) });
for await (const line of lines) await run(JSON.parse(line));
