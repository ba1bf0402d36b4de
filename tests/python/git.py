"""sandbox.git of the Python SDK."""

from cases import case, equal, fresh, raises, run
from e2b import CommandExitException, GitAuthException, GitUpstreamException, InvalidArgumentException, Sandbox


def repository(sandbox):
    path = f"{fresh(sandbox)}/repo"
    sandbox.git.init(path, initial_branch="main")
    sandbox.files.write(f"{path}/readme", "hello\n")
    sandbox.git.add(path)
    sandbox.git.commit(path, "first")
    return path


def with_remote(sandbox):
    path = repository(sandbox)
    remote = f"{path}.git"
    sandbox.git.init(remote, bare=True, initial_branch="main")
    sandbox.git.remote_add(path, "origin", remote)
    sandbox.git.push(path, remote="origin", branch="main")
    return remote, path


def log(sandbox, path):
    return sandbox.commands.run(f"git -C {path} log --format=%s").stdout


@case("configuration in every scope")
def _(sandbox):
    path = repository(sandbox)
    sandbox.git.set_config("pull.rebase", "true", scope="local", path=path)
    sandbox.git.set_config("sandbar.word", 'a b "c"')
    sandbox.git.set_config("sandbar.system", "yes", scope="system", user="root")
    equal(sandbox.git.get_config("pull.rebase", scope="local", path=path), "true")
    equal(sandbox.git.get_config("sandbar.word"), 'a b "c"')
    equal(sandbox.git.get_config("sandbar.system", scope="system"), "yes")
    equal(sandbox.git.get_config("sandbar.missing"), None)
    raises(InvalidArgumentException, lambda: sandbox.git.set_config("", "x"))
    raises(InvalidArgumentException, lambda: sandbox.git.set_config("a.b", "x", scope="local"))
    raises(InvalidArgumentException, lambda: sandbox.git.configure_user("", ""))
    sandbox.git.configure_user("Local", "local@example.test", scope="local", path=path)
    sandbox.git.commit(path, "mine", allow_empty=True)
    equal(sandbox.commands.run(f"git -C {path} log -1 --format=%an").stdout, "Local\n")


@case("status of every kind")
def _(sandbox):
    path = repository(sandbox)
    for name in ["changed", "deleted", "renamed"]:
        sandbox.files.write(f"{path}/{name}", f"{name}\n")
    sandbox.git.add(path)
    sandbox.git.commit(path, "more")
    sandbox.files.write(f"{path}/changed", "different\n")
    sandbox.files.remove(f"{path}/deleted")
    sandbox.commands.run(f"cd {path} && git mv renamed moved")
    sandbox.files.write(f"{path}/staged", "new\n")
    sandbox.git.add(path, files=["staged"])
    sandbox.files.write(f"{path}/unknown", "")
    status = sandbox.git.status(path)
    equal((status.current_branch, status.is_clean, status.has_staged, status.has_untracked), ("main", False, True, True))
    equal(
        {file.name: file.status for file in status.file_status},
        {"changed": "modified", "deleted": "deleted", "moved": "renamed", "staged": "added", "unknown": "untracked"},
    )
    raises(CommandExitException, lambda: sandbox.git.status(fresh(sandbox)))


@case("commits with message and author")
def _(sandbox):
    path = repository(sandbox)
    message = 'it\'s "quoted" $HOME\n\nsecond paragraph ü'
    sandbox.git.commit(path, message, author_name="Ada", author_email="ada@example.test", allow_empty=True)
    equal(sandbox.commands.run(f"git -C {path} log -1 --format='%an <%ae>%n%B'").stdout, f"Ada <ada@example.test>\n{message}\n\n")
    raises(CommandExitException, lambda: sandbox.git.commit(path, "nothing"))


@case("branches")
def _(sandbox):
    path = repository(sandbox)
    sandbox.git.create_branch(path, "feature")
    sandbox.git.commit(path, "on it", allow_empty=True)
    branches = sandbox.git.branches(path)
    equal((branches.branches, branches.current_branch), (["feature", "main"], "feature"))
    sandbox.git.checkout_branch(path, "main")
    raises(CommandExitException, lambda: sandbox.git.delete_branch(path, "feature"))
    sandbox.git.delete_branch(path, "feature", force=True)
    equal(sandbox.git.branches(path).branches, ["main"])
    raises(CommandExitException, lambda: sandbox.git.checkout_branch(path, "missing"))


@case("reset and restore")
def _(sandbox):
    path = repository(sandbox)
    sandbox.files.write(f"{path}/readme", "second\n")
    sandbox.git.add(path)
    sandbox.git.commit(path, "second")
    sandbox.git.reset(path, mode="soft", target="HEAD~1")
    equal(sandbox.git.status(path).staged_count, 1)
    sandbox.git.reset(path, paths=["readme"])
    equal(sandbox.git.status(path).staged_count, 0)
    sandbox.git.reset(path, mode="hard")
    equal(sandbox.files.read(f"{path}/readme"), "hello\n")
    sandbox.files.write(f"{path}/readme", "changed\n")
    sandbox.git.restore(path, paths=["readme"])
    equal(sandbox.files.read(f"{path}/readme"), "hello\n")
    sandbox.files.write(f"{path}/readme", "changed\n")
    sandbox.git.add(path)
    sandbox.git.restore(path, paths=["."], staged=True)
    equal(sandbox.git.status(path).staged_count, 0)
    raises(InvalidArgumentException, lambda: sandbox.git.restore(path, paths=[]))
    raises(InvalidArgumentException, lambda: sandbox.git.reset(path, mode="gently"))


@case("remotes and clones")
def _(sandbox):
    remote, path = with_remote(sandbox)
    equal(sandbox.git.remote_get(path, "origin"), remote)
    equal(sandbox.git.remote_get(path, "missing"), None)
    raises(CommandExitException, lambda: sandbox.git.remote_add(path, "origin", "/elsewhere"))
    sandbox.git.remote_add(path, "origin", remote, overwrite=True, fetch=True)
    sandbox.git.create_branch(path, "feature")
    sandbox.git.commit(path, "on feature", allow_empty=True)
    sandbox.git.push(path, remote="origin", branch="feature")
    target = fresh(sandbox)
    sandbox.git.clone(remote, path=f"{target}/whole")
    equal(log(sandbox, f"{target}/whole"), "first\n")
    sandbox.git.clone(f"file://{remote}", path=f"{target}/shallow", branch="feature", depth=1)
    equal(log(sandbox, f"{target}/shallow"), "on feature\n")
    raises(CommandExitException, lambda: sandbox.git.clone("/no/such", path=f"{target}/x"))
    raises(InvalidArgumentException, lambda: sandbox.git.clone("https://example.test/x.git", password="p"))


@case("push and pull")
def _(sandbox):
    remote, path = with_remote(sandbox)
    other = f"{fresh(sandbox)}/other"
    sandbox.git.clone(remote, path=other)
    sandbox.files.write(f"{other}/new", "from other\n")
    sandbox.git.add(other)
    sandbox.git.commit(other, "from other")
    sandbox.git.push(other)
    sandbox.git.pull(path)
    equal(sandbox.files.read(f"{path}/new"), "from other\n")
    sandbox.git.create_branch(path, "lonely")
    raises(GitUpstreamException, lambda: sandbox.git.pull(path))
    raises(GitUpstreamException, lambda: sandbox.git.push(path, set_upstream=False))
    raises(InvalidArgumentException, lambda: sandbox.git.push(path, password="p"))
    raises(InvalidArgumentException, lambda: sandbox.git.pull(path, password="p"))


@case("authentication")
def _(sandbox):
    directory = fresh(sandbox)
    sandbox.files.write(
        f"{directory}/server.py",
        """from http.server import *
class Refusing(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header('WWW-Authenticate', 'Basic realm="git"')
        self.send_header('Content-Length', '0')
        self.end_headers()
HTTPServer(('127.0.0.1', 8932), Refusing).serve_forever()""",
    )
    server = sandbox.commands.run(f"exec python3 {directory}/server.py", background=True)
    sandbox.commands.run("for i in $(seq 100); do curl -s http://127.0.0.1:8932/ && break; sleep 0.1; done")
    url = "http://127.0.0.1:8932/repo.git"
    raises(GitAuthException, lambda: sandbox.git.clone(url, path=f"{directory}/x"))
    raises(GitAuthException, lambda: sandbox.git.clone(url, path=f"{directory}/x", username="ada", password="wrong"))
    server.kill()
    sandbox.git.dangerously_authenticate("ada", "se cret", host="example.test")
    equal(sandbox.files.read("/home/user/.git-credentials"), "https://ada:se%20cret@example.test\n")
    raises(InvalidArgumentException, lambda: sandbox.git.dangerously_authenticate("", ""))


with Sandbox.create(timeout=600) as sandbox:
    sandbox.git.configure_user("Sandbar Test", "test@example.test")
    run(sandbox)
