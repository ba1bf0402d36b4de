import { CommandExitError, GitAuthError, GitUpstreamError, InvalidArgumentError } from 'e2b';
import { beforeAll, describe, expect, it } from 'vitest';
import { describeInSandbox, failureOf } from '../support/sdk.ts';

describeInSandbox('git', ({ sandbox, fresh, shell }) => {
  const git = () => sandbox().git;
  const files = () => sandbox().files;
  const author = { authorName: 'Ada', authorEmail: 'ada@example.test' };

  beforeAll(async () => {
    await git().configureUser('Sandbar Test', 'test@example.test');
    await git().setConfig('init.defaultBranch', 'main');
  });

  /** A repository with one commit. */
  async function repository(): Promise<string> {
    const path = `${await fresh()}/repo`;
    await git().init(path, { initialBranch: 'main' });
    await files().write(`${path}/readme`, 'hello\n');
    await git().add(path);
    await git().commit(path, 'first');
    return path;
  }

  /** A bare repository with one commit on main and a clone of it. */
  async function withRemote(): Promise<{ remote: string; path: string }> {
    const path = await repository();
    const remote = `${path}.git`;
    await git().init(remote, { bare: true, initialBranch: 'main' });
    await git().remoteAdd(path, 'origin', remote);
    await git().push(path, { remote: 'origin', branch: 'main' });
    return { remote, path };
  }

  const log = (path: string) => shell(`git -C ${path} log --format=%s`);

  describe('init', () => {
    it('makes a repository with the branch that is named', async () => {
      const path = `${await fresh()}/repo`;
      const result = await git().init(path, { initialBranch: 'trunk' });
      expect(result.exitCode).toBe(0);
      expect(await git().status(path)).toMatchObject({ currentBranch: 'trunk', isClean: true, detached: false });
    });

    it('makes a bare one', async () => {
      const path = `${await fresh()}/bare.git`;
      await git().init(path, { bare: true });
      expect(await shell(`git -C ${path} rev-parse --is-bare-repository`)).toBe('true\n');
    });
  });

  describe('status', () => {
    it('tells every kind of change', async () => {
      const path = await repository();
      for (const name of ['changed', 'deleted', 'renamed', 'both']) await files().write(`${path}/${name}`, `${name}\n`);
      await git().add(path);
      await git().commit(path, 'more');
      await files().write(`${path}/changed`, 'different\n');
      await files().remove(`${path}/deleted`);
      await shell(`cd ${path} && git mv renamed moved`);
      await files().write(`${path}/staged`, 'new\n');
      await git().add(path, { files: ['staged'] });
      await files().write(`${path}/not known`, '');
      const status = await git().status(path);
      expect(status).toMatchObject({
        currentBranch: 'main',
        isClean: false,
        hasChanges: true,
        hasStaged: true,
        hasUntracked: true,
        hasConflicts: false,
        totalCount: 5,
        untrackedCount: 1,
        conflictCount: 0,
      });
      const byName = Object.fromEntries(status.fileStatus.map((file) => [file.name, file]));
      expect(byName['changed']).toMatchObject({ status: 'modified', staged: false });
      expect(byName['deleted']).toMatchObject({ status: 'deleted' });
      expect(byName['moved']).toMatchObject({ status: 'renamed', staged: true, renamedFrom: 'renamed' });
      expect(byName['staged']).toMatchObject({ status: 'added', staged: true });
      expect(Object.keys(byName).some((name) => name.includes('not known'))).toBe(true);
    });

    it('counts how far a branch is from its upstream', async () => {
      const { path } = await withRemote();
      await git().commit(path, 'ahead', { allowEmpty: true });
      expect(await git().status(path)).toMatchObject({ upstream: 'origin/main', ahead: 1, behind: 0 });
    });

    it('sees conflicts and a detached head', async () => {
      const path = await repository();
      await git().createBranch(path, 'other');
      await files().write(`${path}/readme`, 'other\n');
      await git().add(path);
      await git().commit(path, 'other');
      await git().checkoutBranch(path, 'main');
      await files().write(`${path}/readme`, 'main\n');
      await git().add(path);
      await git().commit(path, 'main');
      await expect(sandbox().commands.run(`git -C ${path} merge other`)).rejects.toThrow(CommandExitError);
      expect(await git().status(path)).toMatchObject({ hasConflicts: true, conflictCount: 1 });
      await shell(`git -C ${path} merge --abort && git -C ${path} checkout -q --detach`);
      expect(await git().status(path)).toMatchObject({ detached: true });
    });

    it('fails where there is no repository', async () => {
      const error = await failureOf(git().status(await fresh()));
      expect(error).toBeInstanceOf(CommandExitError);
      expect((error as CommandExitError).stderr).toContain('not a git repository');
    });
  });

  describe('add and commit', () => {
    it('adds all, one directory or what is named', async () => {
      const path = await repository();
      await files().write(`${path}/a`, 'a');
      await files().write(`${path}/b c`, 'b');
      await files().remove(`${path}/readme`);
      await git().add(path, { files: ['b c'] });
      expect(await git().status(path)).toMatchObject({ stagedCount: 1 });
      await git().add(path, { all: false });
      await git().add(path);
      expect(await git().status(path)).toMatchObject({ stagedCount: 3, unstagedCount: 0 });
      await expect(git().add(path, { files: ['missing'] })).rejects.toThrow(CommandExitError);
    });

    it('commits with message and author as they are, also nothing when allowed', async () => {
      const path = await repository();
      const message = `it's "quoted" $HOME\n\nsecond paragraph ü`;
      await git().commit(path, message, { ...author, allowEmpty: true });
      expect(await shell(`git -C ${path} log -1 --format='%an <%ae>%n%B'`)).toBe(
        `Ada <ada@example.test>\n${message}\n\n`,
      );
      await expect(git().commit(path, 'nothing')).rejects.toThrow(CommandExitError);
    });
  });

  describe('branches', () => {
    it('are made, listed, checked out and deleted', async () => {
      const path = await repository();
      await git().createBranch(path, 'feature/one');
      expect(await git().branches(path)).toEqual({
        branches: ['feature/one', 'main'],
        currentBranch: 'feature/one',
      });
      await git().commit(path, 'on the branch', { allowEmpty: true });
      await git().checkoutBranch(path, 'main');
      expect((await git().branches(path)).currentBranch).toBe('main');
      await expect(git().deleteBranch(path, 'feature/one')).rejects.toThrow(CommandExitError);
      await git().deleteBranch(path, 'feature/one', { force: true });
      expect((await git().branches(path)).branches).toEqual(['main']);
      await expect(git().checkoutBranch(path, 'missing')).rejects.toThrow(CommandExitError);
      await expect(git().createBranch(path, 'main')).rejects.toThrow(CommandExitError);
    });
  });

  describe('reset and restore', () => {
    it('resets softly, mixed, hard and by path', async () => {
      const path = await repository();
      await files().write(`${path}/readme`, 'second\n');
      await git().add(path);
      await git().commit(path, 'second');
      await git().reset(path, { mode: 'soft', target: 'HEAD~1' });
      expect(await git().status(path)).toMatchObject({ stagedCount: 1 });
      await git().reset(path, { paths: ['readme'] });
      expect(await git().status(path)).toMatchObject({ stagedCount: 0, unstagedCount: 1 });
      await git().reset(path, { mode: 'hard' });
      expect(await files().read(`${path}/readme`)).toBe('hello\n');
      await expect(git().reset(path, { mode: 'gently' as never })).rejects.toThrow(InvalidArgumentError);
      await expect(git().reset(path, { target: 'no-such-commit' })).rejects.toThrow(CommandExitError);
    });

    it('restores the tree, the index or both, from where it is told', async () => {
      const path = await repository();
      await files().write(`${path}/readme`, 'changed\n');
      await git().restore(path, { paths: ['readme'] });
      expect(await files().read(`${path}/readme`)).toBe('hello\n');
      await files().write(`${path}/readme`, 'changed\n');
      await git().add(path);
      await git().restore(path, { paths: ['.'], staged: true });
      expect(await git().status(path)).toMatchObject({ stagedCount: 0, unstagedCount: 1 });
      await git().add(path);
      await git().commit(path, 'changed');
      await git().restore(path, { paths: ['readme'], staged: true, worktree: true, source: 'HEAD~1' });
      expect(await files().read(`${path}/readme`)).toBe('hello\n');
      await expect(git().restore(path, { paths: [] })).rejects.toThrow(InvalidArgumentError);
      await expect(git().restore(path, { paths: ['x'], staged: false, worktree: false })).rejects.toThrow(
        InvalidArgumentError,
      );
    });
  });

  describe('remotes', () => {
    it('are added, overwritten, fetched and asked for', async () => {
      const { remote, path } = await withRemote();
      expect(await git().remoteGet(path, 'origin')).toBe(remote);
      expect(await git().remoteGet(path, 'missing')).toBeUndefined();
      await expect(git().remoteAdd(path, 'origin', '/elsewhere')).rejects.toThrow(CommandExitError);
      await git().remoteAdd(path, 'origin', '/elsewhere', { overwrite: true });
      expect(await git().remoteGet(path, 'origin')).toBe('/elsewhere');
      await git().remoteAdd(path, 'second', remote, { fetch: true });
      expect(await shell(`git -C ${path} branch -r`)).toContain('second/main');
      await git().remoteAdd(path, 'second', remote, { fetch: true, overwrite: true });
      await expect(git().remoteAdd(path, '', remote)).rejects.toThrow(InvalidArgumentError);
      await expect(git().remoteGet(path, '')).rejects.toThrow(InvalidArgumentError);
    });

    it('are cloned: whole, a branch, shallow', async () => {
      const { remote, path } = await withRemote();
      await git().createBranch(path, 'feature');
      await git().commit(path, 'on feature', { allowEmpty: true });
      await git().push(path, { remote: 'origin', branch: 'feature' });
      const target = await fresh();
      await git().clone(remote, { path: `${target}/whole` });
      expect(await log(`${target}/whole`)).toBe('first\n');
      await git().clone(remote, { path: `${target}/branch`, branch: 'feature' });
      expect(await log(`${target}/branch`)).toBe('on feature\nfirst\n');
      await git().clone(`file://${remote}`, { path: `${target}/shallow`, branch: 'feature', depth: 1 });
      expect(await log(`${target}/shallow`)).toBe('on feature\n');
      await git().clone(remote, { cwd: target });
      expect(await files().exists(`${target}/repo/readme`)).toBe(true);
    });

    it('fail to be cloned when they are missing, want a password, or get half of one', async () => {
      const target = await fresh();
      await expect(git().clone('/no/such/repo', { path: `${target}/x` })).rejects.toThrow(CommandExitError);
      await expect(git().clone('https://example.test/x.git', { password: 'p' })).rejects.toThrow(InvalidArgumentError);
    });

    it('refuse what needs authentication with an error of its own', async () => {
      // A server that always asks for a password, inside the sandbox.
      const target = await fresh();
      await files().write(
        `${target}/server.py`,
        `from http.server import *
class Refusing(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header('WWW-Authenticate', 'Basic realm="git"')
        self.send_header('Content-Length', '0')
        self.end_headers()
HTTPServer(('127.0.0.1', 8931), Refusing).serve_forever()`,
      );
      const server = await sandbox().commands.run(`exec python3 ${target}/server.py`, { background: true });
      await expect
        .poll(() => shell('curl -s -o /dev/null -w "%{http_code}" http://127.0.0.1:8931/ || true'), { timeout: 15_000 })
        .toBe('401');
      const url = 'http://127.0.0.1:8931/repo.git';
      await expect(git().clone(url, { path: `${target}/x` })).rejects.toThrow(GitAuthError);
      const wrong = { username: 'ada', password: 'wrong' };
      await expect(git().clone(url, { path: `${target}/x`, ...wrong })).rejects.toThrow(GitAuthError);
      const path = await repository();
      await git().remoteAdd(path, 'origin', url);
      await expect(git().push(path, { remote: 'origin', branch: 'main' })).rejects.toThrow(GitAuthError);
      await expect(git().pull(path, { remote: 'origin', branch: 'main' })).rejects.toThrow(GitAuthError);
      await expect(git().push(path, { remote: 'origin', branch: 'main', ...wrong })).rejects.toThrow();
      // The password was put into the address for the one push alone.
      expect(await git().remoteGet(path, 'origin')).toBe(url);
      await server.kill();
    });
  });

  describe('push and pull', () => {
    it('carry commits from one clone to another', async () => {
      const { remote, path } = await withRemote();
      const other = `${await fresh()}/other`;
      await git().clone(remote, { path: other });
      await files().write(`${other}/new`, 'from other\n');
      await git().add(other);
      await git().commit(other, 'from other', author);
      await git().push(other);
      await git().pull(path);
      expect(await files().read(`${path}/new`)).toBe('from other\n');
      await git().pull(path, { remote: 'origin', branch: 'main' });
      expect(await git().status(path)).toMatchObject({ ahead: 0, behind: 0, upstream: 'origin/main' });
    });

    it('say when there is no upstream', async () => {
      const { path } = await withRemote();
      await git().createBranch(path, 'lonely');
      await expect(git().pull(path)).rejects.toThrow(GitUpstreamError);
      await expect(git().push(path, { setUpstream: false })).rejects.toThrow(GitUpstreamError);
      await git().push(path, { remote: 'origin', branch: 'lonely', setUpstream: true });
      expect(await git().status(path)).toMatchObject({ upstream: 'origin/lonely' });
    });

    it('fail when the histories went apart, and for half a password', async () => {
      const { remote, path } = await withRemote();
      const other = `${await fresh()}/other`;
      await git().clone(remote, { path: other });
      await git().commit(other, 'theirs', { allowEmpty: true });
      await git().push(other);
      await git().commit(path, 'ours', { allowEmpty: true });
      await expect(git().push(path)).rejects.toThrow(CommandExitError);
      await expect(git().push(path, { password: 'p' })).rejects.toThrow(InvalidArgumentError);
      await expect(git().pull(path, { password: 'p' })).rejects.toThrow(InvalidArgumentError);
    });
  });

  describe('configuration', () => {
    it('is set and read in each scope', async () => {
      const path = await repository();
      await git().setConfig('pull.rebase', 'true', { scope: 'local', path });
      await git().setConfig('sandbar.word', 'a b "c"');
      await git().setConfig('sandbar.system', 'yes', { scope: 'system', user: 'root' });
      expect(await git().getConfig('pull.rebase', { scope: 'local', path })).toBe('true');
      expect(await git().getConfig('sandbar.word')).toBe('a b "c"');
      expect(await git().getConfig('sandbar.system', { scope: 'system' })).toBe('yes');
      expect(await git().getConfig('sandbar.missing')).toBeUndefined();
      await expect(git().setConfig('', 'x')).rejects.toThrow(InvalidArgumentError);
      await expect(git().getConfig('')).rejects.toThrow(InvalidArgumentError);
      await expect(git().setConfig('a.b', 'x', { scope: 'local' })).rejects.toThrow(InvalidArgumentError);
      await expect(git().setConfig('no-section', 'x')).rejects.toThrow(CommandExitError);
    });

    it('holds the user, for all repositories or for one', async () => {
      const path = await repository();
      await git().configureUser('Local', 'local@example.test', { scope: 'local', path });
      await git().commit(path, 'mine', { allowEmpty: true });
      expect(await shell(`git -C ${path} log -1 --format=%an`)).toBe('Local\n');
      expect(await git().getConfig('user.name')).toBe('Sandbar Test');
      await expect(git().configureUser('', '')).rejects.toThrow(InvalidArgumentError);
    });

    it('stores a password for good when the caller insists', async () => {
      await git().dangerouslyAuthenticate({ username: 'ada', password: 'se cret', host: 'example.test' });
      expect(await files().read('/home/user/.git-credentials')).toBe('https://ada:se%20cret@example.test\n');
      await expect(git().dangerouslyAuthenticate({ username: '', password: '' })).rejects.toThrow(InvalidArgumentError);
    });
  });

  it('runs with the caller’s user, environment and timeout', async () => {
    const path = `${await fresh()}/as-root`;
    await git().init(path, { user: 'root' });
    expect(await shell(`stat -c %U ${path}`)).toBe('root\n');
    await git().commit(path, 'x', {
      user: 'root',
      allowEmpty: true,
      envs: { GIT_AUTHOR_NAME: 'E', GIT_AUTHOR_EMAIL: 'e@x', GIT_COMMITTER_NAME: 'E', GIT_COMMITTER_EMAIL: 'e@x' },
      timeoutMs: 30_000,
    });
    expect((await sandbox().commands.run(`git -C ${path} log -1 --format=%an`, { user: 'root' })).stdout).toBe('E\n');
  });
});
