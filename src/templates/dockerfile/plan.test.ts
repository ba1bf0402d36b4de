import { describe, expect, it } from 'vitest';
import { planOfDockerfile } from './plan.ts';

const HASH = 'a'.repeat(64);
const read = (text: string) => planOfDockerfile(text, { filesHash: HASH });
const actions = (text: string) =>
  read(text)
    .stages.at(-1)
    ?.steps.map(({ action }) => action) ?? [];

describe('a Dockerfile', () => {
  it('becomes steps, from root to the user of sandboxes', () => {
    const plan = read('FROM python:3.12\nRUN pip install x\n');
    expect(plan).toEqual({
      stages: [
        {
          base: { kind: 'image', image: 'python:3.12' },
          steps: [
            { text: 'USER root', action: { kind: 'user', name: 'root', sudo: false }, force: false },
            { text: 'WORKDIR /', action: { kind: 'workdir', path: '/' }, force: false },
            { text: 'RUN pip install x', action: { kind: 'run', command: 'pip install x' }, force: false },
            { text: 'USER user', action: { kind: 'user', name: 'user', sudo: false }, force: false },
            { text: 'WORKDIR /home/user', action: { kind: 'workdir', path: '/home/user' }, force: false },
          ],
        },
      ],
      force: false,
    });
  });

  it('may set user and directory itself', () => {
    const plan = read('FROM x\nUSER app:app\nWORKDIR $HOME_DIR/src\n');
    expect(plan.stages[0]?.steps.map(({ text }) => text)).toEqual([
      'USER root',
      'WORKDIR /',
      'USER app:app',
      'WORKDIR $HOME_DIR/src',
    ]);
  });

  it('continues lines, with comments and empty lines between', () => {
    const text = '# syntax=docker/dockerfile:1\nFROM x\nRUN one && \\\n  # not this\n\n  two \\ \n  three\n';
    expect(actions(text)[2]).toEqual({ kind: 'run', command: 'one &&   two   three' });
  });

  it('runs words without a shell, and with the shell it names', () => {
    const found = actions('FROM x\nRUN ["echo", "a b", "$X"]\nSHELL ["/bin/dash", "-c"]\nRUN echo hi\n');
    expect(found[2]).toEqual({ kind: 'run', command: "echo 'a b' '$X'", words: ['echo', 'a b', '$X'] });
    expect(found[3]).toEqual({ kind: 'run', command: 'echo hi', words: ['/bin/dash', '-c', 'echo hi'] });
  });

  it('takes heredocs: a script, the input of a command, a file', () => {
    const text = `FROM x
RUN <<EOF
echo one
echo two
EOF
RUN python3 <<'PY'
print("$X")
PY
COPY <<-CONF /etc/app/
\tname=$NAME
\tCONF
RUN <<SCRIPT
#!/usr/bin/env python3
print(1)
SCRIPT
`;
    const found = actions(text);
    expect(found[2]).toEqual({ kind: 'run', command: 'echo one\necho two\n' });
    expect(found[3]).toEqual({ kind: 'run', command: 'python3 <<\'PY\'\nprint("$X")\nPY\n' });
    expect(found[4]).toMatchObject({
      kind: 'copy',
      sources: ['CONF'],
      destination: '/etc/app/',
      origin: { kind: 'inline', files: [{ name: 'CONF', content: 'name=$NAME\n', expand: true }] },
    });
    expect(found[5]).toMatchObject({ command: expect.stringContaining('#!/usr/bin/env python3\nprint(1)\n') });
  });

  it('copies with owner and mode, from its directory, from stages and from images', () => {
    const text = `FROM golang:1.22 AS Build
RUN go build -o /out/app
FROM build AS more
FROM debian
COPY --from=build --chown=app:app --chmod=755 /out/app /usr/local/bin/
COPY --from=0 /a /b
COPY --from=nginx:latest /etc/nginx/nginx.conf /etc/
COPY ["a file", "other", "/dest/"]
ADD --link src /app
`;
    const plan = read(text);
    expect(plan.stages[1]?.base).toEqual({ kind: 'stage', stage: 0 });
    const found = actions(text).slice(2);
    expect(found[0]).toEqual({
      kind: 'copy',
      sources: ['/out/app'],
      destination: '/usr/local/bin/',
      owner: 'app:app',
      mode: '755',
      origin: { kind: 'stage', stage: 0 },
    });
    expect(found[1]).toMatchObject({ origin: { kind: 'stage', stage: 0 }, owner: 'root' });
    expect(found[2]).toMatchObject({ origin: { kind: 'image', image: 'nginx:latest' } });
    expect(found[3]).toMatchObject({ sources: ['a file', 'other'], origin: { kind: 'upload', filesHash: HASH } });
    expect(found[4]).toMatchObject({ sources: ['src'], destination: '/app' });
  });

  it('fetches what ADD names by its address', () => {
    const [, , add] = actions('FROM x\nADD https://example.com/dir/tool.bin /opt/\n');
    expect(add).toMatchObject({ kind: 'run', user: 'root', command: expect.stringContaining("'/opt/tool.bin'") });
  });

  it('sets variables in every form', () => {
    const found = actions('FROM x\nENV A=1 B="two words" C=\'no $expansion\' D=a\\ b\nENV E all the rest\n');
    expect(found[2]).toEqual({
      kind: 'env',
      values: [
        ['A', '1'],
        ['B', 'two words'],
        ['C', 'no \\$expansion'],
        ['D', 'a b'],
      ],
    });
    expect(found[3]).toEqual({ kind: 'env', values: [['E', 'all the rest']] });
  });

  it('knows ARG before and after FROM', () => {
    const plan = read('ARG VERSION=3.12\nARG BASE=python:$VERSION\nFROM $BASE\nARG VERSION\nARG X=${VERSION}-x Y\n');
    expect(plan.stages[0]?.base).toEqual({ kind: 'image', image: 'python:3.12' });
    expect(plan.stages[0]?.steps.slice(2, 5).map(({ action }) => action)).toEqual([
      { kind: 'arg', name: 'VERSION', value: '3.12' },
      { kind: 'arg', name: 'X', value: '${VERSION}-x' },
      { kind: 'arg', name: 'Y', value: '' },
    ]);
  });

  it.each([
    ['CMD python app.py', 'python app.py'],
    ['CMD ["python", "app.py", "a b"]', "python app.py 'a b'"],
    ['ENTRYPOINT ["serve"]\nCMD ["--port", "80"]', 'serve --port 80'],
    ['CMD ["--port", "80"]\nENTRYPOINT ["serve"]', 'serve --port 80'],
    ['ENTRYPOINT serve now\nCMD ["--port"]', 'serve now'],
    ['EXPOSE 80\nVOLUME /data\nLABEL a=b', undefined],
  ])('starts with %j', (lines, startCmd) => {
    expect(read(`FROM x\n${lines}\n`).startCmd).toBe(startCmd);
  });

  it.each([
    ['', 'line 1: a FROM instruction is missing'],
    ['RUN x\nFROM y', 'line 1: RUN stands before FROM'],
    ['FROM x\n\nFOO bar', 'line 3: FOO is not supported'],
    ['FROM x\nONBUILD RUN y', 'line 2: ONBUILD is not supported'],
    ['FROM scratch', 'line 1: FROM scratch is not supported'],
    ['FROM a b', 'line 1: FROM takes the name of an image'],
    ['FROM --platform=linux/s390x x', 'line 1: images for linux/s390x do not run here'],
    ['FROM x\nRUN --mount=type=cache,target=/x y', 'line 2: RUN --mount is not supported'],
    ['FROM x\nRUN', 'line 2: RUN needs a command'],
    ['FROM x\nRUN <<EOF\nhello', "line 2: the text behind '<<EOF' never ends"],
    ['FROM x\nCOPY a', 'line 2: COPY needs a source and a destination'],
    ['FROM x\nCOPY ../a /b', "line 2: the source '../a' leads out"],
    ['FROM x\nCOPY a b /c', 'line 2: COPY of several sources needs a directory'],
    ['FROM x\nCOPY --from=3 a /b', "line 2: there is no stage '3'"],
    ['FROM x\nCOPY --chmod=u+x a /b', 'line 2: --chmod=u+x is not supported'],
    ['FROM x\nCOPY --exclude=y a /b', 'line 2: COPY --exclude is not supported'],
    ['FROM x\nADD a.tar.gz /b', 'line 2: ADD does not unpack archives'],
    ['FROM x\nADD git@host:repo.git /b', 'line 2: ADD of a repository is not supported'],
    ['FROM x\nENV A', 'line 2: ENV A needs a value'],
    ["FROM x\nENV A='b", 'line 2: a quote'],
    ['FROM x\nWORKDIR', 'line 2: WORKDIR takes one word'],
    ['FROM x\n&& y', "line 2: '&& y' is not an instruction"],
    ['FROM x AS a\nFROM y AS a', "line 2: there are two stages 'a'"],
    ['FROM x\nARG 1a', "line 2: '1a' cannot be the name of a variable"],
    ['FROM x\nSHELL bash', 'line 2: SHELL needs its words'],
  ])('says which line of %j is wrong', (text, message) => {
    expect(() => read(text)).toThrow(message);
  });

  it('needs uploaded files for COPY of its directory', () => {
    expect(() => planOfDockerfile('FROM x\nCOPY a /b')).toThrow(/line 2: COPY takes files of the build's directory/);
  });
});
