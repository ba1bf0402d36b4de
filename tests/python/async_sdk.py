"""The asynchronous half of the Python SDK: the same server, another client."""

import asyncio
import os
import time

from cases import aeventually, araises, case, equal, run_async
from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    NotFoundException,
    PtySize,
    TimeoutException,
)


@case("files")
async def _(sandbox):
    data = os.urandom(300_000)
    await sandbox.files.write("dir/file", data)
    equal(bytes(await sandbox.files.read("dir/file", format="bytes")), data)
    chunks = [chunk async for chunk in await sandbox.files.read("dir/file", format="stream")]
    equal(b"".join(chunks), data)

    async def pieces():
        for index in range(0, len(data), 10_000):
            yield data[index : index + 10_000]

    await sandbox.files.write("dir/streamed", pieces())
    equal((await sandbox.files.get_info("dir/streamed")).size, len(data))
    await sandbox.files.write_files([{"path": "dir/a", "data": "a"}, {"path": "dir/b", "data": "b"}], gzip=True)
    equal([entry.name for entry in await sandbox.files.list("dir")], ["a", "b", "file", "streamed"])
    equal((await sandbox.files.rename("dir/a", "dir/c")).name, "c")
    equal(await sandbox.files.exists("dir/a"), False)
    equal(await sandbox.files.make_dir("dir"), False)
    await sandbox.files.remove("dir")
    await araises(FileNotFoundException, sandbox.files.read("dir/file"))


@case("watching by stream")
async def _(sandbox):
    await sandbox.files.make_dir("watched")
    seen, exits = [], []
    watcher = await sandbox.files.watch_dir(
        "watched", on_event=lambda event: seen.append((event.type, event.name)), on_exit=exits.append, recursive=True
    )
    await sandbox.files.write("watched/file", "x")
    await aeventually(lambda: (FilesystemEventType.WRITE, "file") in seen)
    assert (FilesystemEventType.CREATE, "file") in seen
    await watcher.stop()
    await araises(FileNotFoundException, sandbox.files.watch_dir("nowhere", on_event=print))


@case("a watch that ends at its timeout")
async def _(sandbox):
    exits = []
    await sandbox.files.watch_dir("/tmp", on_event=lambda event: None, on_exit=exits.append, timeout=1)
    await aeventually(lambda: exits)
    assert isinstance(exits[0], TimeoutException), exits


@case("commands")
async def _(sandbox):
    out = []
    result = await sandbox.commands.run("echo out; echo err >&2", on_stdout=out.append)
    equal((result.stdout, result.stderr, out), ("out\n", "err\n", ["out\n"]))
    failure = await araises(CommandExitException, sandbox.commands.run("exit 3"))
    equal(failure.exit_code, 3)
    handle = await sandbox.commands.run("cat", background=True, stdin=True)
    await sandbox.commands.send_stdin(handle.pid, "typed")
    await sandbox.commands.close_stdin(handle.pid)
    equal((await handle.wait()).stdout, "typed")
    sleeping = await sandbox.commands.run("exec sleep 30", background=True)
    assert sleeping.pid in [process.pid for process in await sandbox.commands.list()]
    equal(await sandbox.commands.kill(sleeping.pid), True)
    equal((await araises(CommandExitException, sleeping.wait())).error, "signal: killed")
    await araises(TimeoutException, sandbox.commands.run("exec sleep 30", timeout=1))
    await araises(NotFoundException, sandbox.commands.connect(999_999))


@case("many commands at once")
async def _(sandbox):
    results = await asyncio.gather(*(sandbox.commands.run(f"seq 1 300; echo {index}") for index in range(30)))
    for index, result in enumerate(results):
        assert result.stdout.endswith(f"300\n{index}\n")


@case("a task that is cancelled leaves the command running")
async def _(sandbox):
    task = asyncio.create_task(sandbox.commands.run("sleep 1; touch /home/user/went-on"))
    await asyncio.sleep(0.5)
    task.cancel()
    try:
        await task
        raise AssertionError("it was not cancelled")
    except asyncio.CancelledError:
        pass
    await aeventually(lambda: sandbox.files.exists("/home/user/went-on"))


@case("a terminal")
async def _(sandbox):
    seen = []
    handle = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=seen.append)
    await sandbox.pty.resize(handle.pid, PtySize(rows=40, cols=100))
    await sandbox.pty.send_stdin(handle.pid, b"stty size; exit 4\n")
    failure = await araises(CommandExitException, handle.wait())
    equal(failure.exit_code, 4)
    assert b"40 100" in b"".join(seen), seen


@case("git")
async def _(sandbox):
    await sandbox.git.configure_user("Ada", "ada@example.test")
    await sandbox.git.init("repo", initial_branch="main")
    await sandbox.files.write("repo/readme", "x")
    await sandbox.git.add("/home/user/repo")
    await sandbox.git.commit("/home/user/repo", "first")
    status = await sandbox.git.status("/home/user/repo")
    equal((status.current_branch, status.is_clean), ("main", True))


@case("lives and ends")
async def _(_sandbox):
    started = time.monotonic()
    brief = await AsyncSandbox.create(timeout=2)
    equal(await brief.is_running(), True)
    command = await brief.commands.run("sleep 60", background=True)
    await araises(TimeoutException, command.wait(), "killed or reached its end of life")
    assert time.monotonic() - started < 8
    equal(await brief.is_running(), False)
    equal(await brief.kill(), False)


async def main():
    sandbox = await AsyncSandbox.create(timeout=600)
    try:
        await run_async(sandbox)
    finally:
        await sandbox.kill()


asyncio.run(main())
