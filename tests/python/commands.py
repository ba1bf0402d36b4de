"""sandbox.commands and sandbox.pty of the Python SDK."""

import threading
import time

from cases import case, equal, eventually, fresh, raises, run
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    TimeoutException,
)

NO_SUCH_PID = 999_999


def is_listed(sandbox, pid):
    return any(process.pid == pid for process in sandbox.commands.list())


@case("gives both outputs and the exit code")
def _(sandbox):
    result = sandbox.commands.run("echo out; echo err >&2")
    equal((result.stdout, result.stderr, result.exit_code, result.error), ("out\n", "err\n", 0, None))


@case("fails with the exit code")
def _(sandbox):
    for command, code, error in [
        ("exit 3", 3, "exit status 3"),
        ("no-such-command", 127, "exit status 127"),
        ("kill -9 $$", -1, "signal: killed"),
    ]:
        failure = raises(CommandExitException, lambda: sandbox.commands.run(f"echo said; {command}"))
        equal((failure.exit_code, failure.error, failure.stdout), (code, error, "said\n"))


@case("takes environment, directory and user")
def _(sandbox):
    directory = fresh(sandbox)
    equal(sandbox.commands.run("echo $FROM_SANDBOX $OWN", envs={"OWN": "mine"}).stdout, "sandbox mine\n")
    equal(sandbox.commands.run("echo $FROM_SANDBOX", envs={"FROM_SANDBOX": "request"}).stdout, "request\n")
    equal(sandbox.commands.run("pwd").stdout, "/home/user\n")
    equal(sandbox.commands.run("pwd", cwd=directory).stdout, f"{directory}\n")
    equal(sandbox.commands.run("id -un; sudo id -un").stdout, "user\nroot\n")
    equal(sandbox.commands.run("id -un; echo $HOME", user="root").stdout, "root\n/root\n")
    raises(InvalidArgumentException, lambda: sandbox.commands.run("true", cwd="/no/such"), "cwd '/no/such' does not exist")
    raises(AuthenticationException, lambda: sandbox.commands.run("true", user="nobody-here"), "invalid username")


@case("calls back while it runs")
def _(sandbox):
    out, err = [], []
    result = sandbox.commands.run("echo one; echo oops >&2; sleep 0.3; echo two", on_stdout=out.append, on_stderr=err.append)
    equal((out, err, result.stdout), (["one\n", "two\n"], ["oops\n"], "one\ntwo\n"))


@case("keeps no output when told not to")
def _(sandbox):
    out = []
    result = sandbox.commands.run("seq 1 1000", on_stdout=out.append, retain_output=False)
    equal((result.stdout, "".join(out).splitlines()[-1]), (None, "1000"))


@case("brings large output and torn characters")
def _(sandbox):
    equal(len(sandbox.commands.run("head -c 5000000 /dev/zero | tr '\\0' x").stdout), 5_000_000)
    script = "import sys,time\nfor b in 'ü漢🙂'.encode(): sys.stdout.buffer.write(bytes([b])); sys.stdout.buffer.flush(); time.sleep(0.01)"
    equal(sandbox.commands.run(f'python3 -c "{script}"').stdout, "ü漢🙂")


@case("is killed at its timeout")
def _(sandbox):
    started = time.monotonic()
    raises(TimeoutException, lambda: sandbox.commands.run("exec sleep 40", timeout=1))
    assert time.monotonic() - started < 5
    eventually(lambda: "sleep 40" not in sandbox.commands.run("ps -eo args").stdout)
    equal(sandbox.commands.run("sleep 0.3; echo late", timeout=0).stdout, "late\n")


@case("runs in the background, is listed and killed")
def _(sandbox):
    handle = sandbox.commands.run("exec sleep 30", background=True, envs={"A": "b"}, cwd="/tmp")
    process = next(process for process in sandbox.commands.list() if process.pid == handle.pid)
    equal((process.cmd, process.args, process.envs, process.cwd), ("/bin/bash", ["-l", "-c", "exec sleep 30"], {"A": "b"}, "/tmp"))
    equal(handle.kill(), True)
    failure = raises(CommandExitException, handle.wait)
    equal((failure.exit_code, failure.error), (-1, "signal: killed"))
    equal(is_listed(sandbox, handle.pid), False)
    equal(sandbox.commands.kill(handle.pid), False)
    equal(sandbox.commands.kill(NO_SUCH_PID), False)


@case("can be iterated")
def _(sandbox):
    handle = sandbox.commands.run("echo a; sleep 0.2; echo b >&2", background=True)
    equal([(out, err) for out, err, _ in handle], [("a\n", None), (None, "b\n")])


@case("takes stdin")
def _(sandbox):
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "one ")
    handle.send_stdin(b"two")
    sandbox.commands.close_stdin(handle.pid)
    equal(handle.wait().stdout, "one two")
    closed = sandbox.commands.run("sleep 30", background=True)
    raises(SandboxException, lambda: sandbox.commands.send_stdin(closed.pid, "x"), "stdin not enabled or closed")
    closed.kill()
    raises(NotFoundException, lambda: sandbox.commands.send_stdin(NO_SUCH_PID, "x"))
    raises(NotFoundException, lambda: sandbox.commands.close_stdin(NO_SUCH_PID))


@case("streams input")
def _(sandbox):
    handle = sandbox.commands.run("cat", background=True, stdin=True)

    def pieces():
        for index in range(50):
            yield f"{index}\n"
            time.sleep(0.005)

    sandbox.commands.stream_input(handle.pid, pieces())
    handle.close_stdin()
    equal(handle.wait().stdout, "".join(f"{index}\n" for index in range(50)))
    raises(NotFoundException, lambda: sandbox.commands.stream_input(NO_SUCH_PID, ["x"]))


@case("is left and taken over")
def _(sandbox):
    handle = sandbox.commands.run("echo first; sleep 1; echo second; exit 5", background=True)
    next(iter(handle))
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    failure = raises(CommandExitException, again.wait)
    equal((failure.exit_code, failure.stdout), (5, "second\n"))
    late = sandbox.commands.connect(handle.pid)
    equal(raises(CommandExitException, late.wait).exit_code, 5)
    raises(NotFoundException, lambda: sandbox.commands.connect(NO_SUCH_PID))


@case("leaves only, at the timeout of a connection")
def _(sandbox):
    handle = sandbox.commands.run("sleep 2; echo whole", background=True)
    brief = sandbox.commands.connect(handle.pid, timeout=1)
    raises(TimeoutException, brief.wait)
    equal(handle.wait().stdout, "whole\n")


@case("runs many at once from threads")
def _(sandbox):
    results = [None] * 20
    def work(index):
        results[index] = sandbox.commands.run(f"seq 1 500; echo {index}").stdout
    threads = [threading.Thread(target=work, args=(index,)) for index in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, stdout in enumerate(results):
        assert stdout.endswith(f"500\n{index}\n"), index


@case("ends with its sandbox, and says so")
def _(_sandbox):
    doomed = Sandbox.create(timeout=60)
    handle = doomed.commands.run("sleep 60", background=True)
    threading.Timer(0.5, doomed.kill).start()
    raises(TimeoutException, handle.wait, "killed or reached its end of life")
    equal(doomed.is_running(), False)
    raises(TimeoutException, lambda: doomed.commands.run("true"))
    raises(TimeoutException, lambda: doomed.files.read("/etc/passwd"))


@case("pty: a shell on a terminal")
def _(sandbox):
    handle = sandbox.pty.create(PtySize(rows=31, cols=97), envs={"EXTRA": "given"}, cwd="/tmp", timeout=60)
    sandbox.pty.send_stdin(handle.pid, b'stty size; echo "$TERM $EXTRA $(pwd)"; exit 7\n')
    seen = []
    failure = raises(CommandExitException, lambda: handle.wait(on_pty=seen.append))
    equal(failure.exit_code, 7)
    screen = b"".join(seen).decode()
    assert "31 97" in screen, screen
    assert "xterm-256color given /tmp" in screen, screen


@case("pty: resize, list, connect, kill")
def _(sandbox):
    handle = sandbox.pty.create(PtySize(rows=24, cols=80), user="root")
    equal([process.args for process in sandbox.commands.list() if process.pid == handle.pid], [["-i", "-l"]])
    sandbox.pty.resize(handle.pid, PtySize(rows=50, cols=132))
    handle.disconnect()
    again = sandbox.pty.connect(handle.pid)
    sandbox.pty.stream_input(handle.pid, [b'echo "$(stty size) ', b'$(id -un)"\n'])
    screen = b""
    for _out, _err, data in again:
        screen += data or b""
        if b"50 132 root" in screen:
            break
    equal(sandbox.pty.kill(handle.pid), True)
    eventually(lambda: not is_listed(sandbox, handle.pid))
    equal(sandbox.pty.kill(handle.pid), False)


@case("pty: what is refused")
def _(sandbox):
    plain = sandbox.commands.run("sleep 30", background=True, stdin=True)
    raises(SandboxException, lambda: sandbox.pty.send_stdin(plain.pid, b"x"), "error writing to tty")
    raises(SandboxException, lambda: sandbox.pty.resize(plain.pid, PtySize(rows=1, cols=1)), "error resizing tty")
    plain.kill()
    raises(NotFoundException, lambda: sandbox.pty.send_stdin(NO_SUCH_PID, b"x"))
    raises(NotFoundException, lambda: sandbox.pty.resize(NO_SUCH_PID, PtySize(rows=1, cols=1)))
    raises(NotFoundException, lambda: sandbox.pty.connect(NO_SUCH_PID))
    raises(AuthenticationException, lambda: sandbox.pty.create(PtySize(rows=1, cols=1), user="nobody-here"))
    raises(InvalidArgumentException, lambda: sandbox.pty.create(PtySize(rows=1, cols=1), cwd="/no/such"))
    brief = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=1)
    raises(TimeoutException, brief.wait)
    eventually(lambda: not is_listed(sandbox, brief.pid))


with Sandbox.create(timeout=600, envs={"FROM_SANDBOX": "sandbox"}) as sandbox:
    run(sandbox)
