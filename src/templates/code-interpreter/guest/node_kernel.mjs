// JavaScript and TypeScript: Node's own REPL without its terminal, so that variables stay and `await` works at the top.
// Arguments: the descriptor to read requests from, the descriptor to answer on; both are lines of JSON.
import domain from 'node:domain';
import fs from 'node:fs';
import { createRequire, stripTypeScriptTypes } from 'node:module';
import readline from 'node:readline';
import repl from 'node:repl';
import { PassThrough } from 'node:stream';
import util from 'node:util';
import vm from 'node:vm';

const [askedFd, sayingFd] = process.argv.slice(2).map(Number);
/** What traces call the code that is run. */
const CODE = 'code';

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

/** Ends the run under way with an error. */
let fail;
// The REPL gives what code throws to its domain, not to the callback of the evaluation.
const thrown = domain.create();
thrown.on('error', (error) => (fail ?? complain)(error));

const server = repl.start({
  input: new PassThrough(),
  output: new PassThrough().resume(),
  terminal: false,
  prompt: '',
  useGlobal: true,
  replMode: repl.REPL_MODE_SLOPPY,
  breakEvalOnSigint: true,
  domain: thrown,
});
globalThis.require = createRequire(`${process.cwd()}/`);

/** Shows a value beside the result: an object of MIME types, or anything else as text. */
globalThis.display = (value) => {
  const isBundle = value && typeof value === 'object' && Object.keys(value).every((key) => key.includes('/'));
  say({ type: 'result', main: false, data: isBundle ? value : { 'text/plain': util.inspect(value) } });
};

/** Imports stand only in modules; here they are made the calls that they come to. Code that is a script is left as it is. */
function withoutImports(code) {
  try {
    new vm.Script(code);
    return code;
  } catch {}
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

function javascriptOf(code) {
  try {
    return stripTypeScriptTypes(code, { mode: 'transform' });
  } catch (error) {
    throw described(error);
  }
}

function evaluate(code) {
  return new Promise((resolve, reject) => {
    fail = (error) => reject(described(error));
    // While code computes, the REPL hears the signal itself, if nobody else does.
    process.off('SIGINT', stopWaiting);
    server.eval(code, globalThis, CODE, (error, value) => (error ? fail(error.err ?? error) : resolve(value)));
    process.on('SIGINT', stopWaiting);
  }).finally(() => {
    fail = undefined;
  });
}

/** For code that waits. */
function stopWaiting() {
  if (fail) server.emit('SIGINT');
}

function complain(error) {
  const { value, traceback } = described(error);
  process.stderr.write(`${traceback || value}\n`);
}

/** An error as it is told: its trace ends where the code does, and not in this file. */
function described(error) {
  if (!util.types.isNativeError(error)) return { name: 'Error', value: util.inspect(error), traceback: '' };
  const lines = String(error.stack).split('\n');
  const first = lines.findIndex((line) => /^ {4}at /.test(line));
  const last = lines.findLastIndex((line) => line.includes(`${CODE}:`));
  const traceback = first === -1 ? lines : lines.slice(0, Math.max(first, last + 1));
  return { name: error.name, value: error.message, traceback: traceback.join('\n') };
}

async function run({ code, lasting, env, typescript }) {
  Object.assign(process.env, lasting);
  const before = Object.fromEntries(Object.keys(env).map((name) => [name, process.env[name]]));
  Object.assign(process.env, env);
  try {
    const value = await evaluate(`${withoutImports(typescript ? javascriptOf(code) : code)}\n`);
    if (value !== undefined) say({ type: 'result', main: true, data: { 'text/plain': util.inspect(value) } });
  } catch (error) {
    say({ type: 'error', ...error });
  } finally {
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    say({ type: 'end' });
  }
}

process.on('uncaughtException', complain);
process.on('unhandledRejection', complain);
process.on('SIGINT', stopWaiting);

const lines = readline.createInterface({ input: fs.createReadStream('', { fd: askedFd }) });
for await (const line of lines) await run(JSON.parse(line));
