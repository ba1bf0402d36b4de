"""The lifecycle of sandboxes through the Python SDK. Prints one line for each scenario that holds."""

import time
from datetime import datetime, timezone

from e2b import NotFoundException, Sandbox, SandboxQuery, SandboxState


def life(sandbox):
    return (sandbox.get_info().end_at - datetime.now(timezone.utc)).total_seconds()


def pause_keeps_memory():
    sandbox = Sandbox.create(timeout=600, metadata={"test": "python"})
    sandbox.files.write("/home/user/note", "kept")
    process = sandbox.commands.run("sleep 1000", background=True, timeout=0)
    watcher = sandbox.files.watch_dir("/home/user")
    assert sandbox.pause() is True
    assert sandbox.pause() is False
    assert sandbox.get_info().state == SandboxState.PAUSED
    assert sandbox.is_running() is False
    paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED], metadata={"test": "python"})).next_items()
    assert [item.sandbox_id for item in paused] == [sandbox.sandbox_id]
    again = Sandbox.connect(sandbox.sandbox_id, timeout=600)
    assert again.get_info().state == SandboxState.RUNNING
    assert [item.pid for item in again.commands.list()] == [process.pid]
    assert again.files.read("/home/user/note") == "kept"
    # A watcher that is asked from time to time lives in the sandbox and goes on.
    again.files.write("/home/user/new", "x")
    deadline = time.time() + 5
    names = []
    while "new" not in names and time.time() < deadline:
        names += [event.name for event in watcher.get_new_events()]
    assert "new" in names, names
    watcher.stop()
    assert again.kill() is True
    assert again.kill() is False


def pause_of_files_alone():
    sandbox = Sandbox.create(timeout=600)
    sandbox.files.write("/home/user/note", "kept")
    sandbox.commands.run("sleep 1000", background=True, timeout=0)
    assert sandbox.pause(mode="filesystem") is True
    again = sandbox.connect(timeout=600)
    assert again.commands.list() == []
    assert again.files.read("/home/user/note") == "kept"
    again.commands.run("sleep 1000", background=True, timeout=0)
    assert again.pause(strict=True) is True
    rebooted = Sandbox.connect(sandbox.sandbox_id, timeout=600, on_resume="reboot")
    assert rebooted.commands.list() == []
    rebooted.kill()


def deadlines():
    sandbox = Sandbox.create(timeout=600)
    sandbox.connect(timeout=60)
    assert life(sandbox) > 580
    sandbox.set_timeout(100)
    assert 80 < life(sandbox) < 101
    sandbox.pause()
    try:
        sandbox.set_timeout(100)
        raise AssertionError("a paused sandbox has no deadline")
    except NotFoundException:
        pass
    sandbox.connect(timeout=60)
    assert 40 < life(sandbox) < 61
    sandbox.kill()


def auto_pause_and_wake():
    sandbox = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True})
    sandbox.commands.run("sleep 1000", background=True, timeout=0)
    deadline = time.time() + 10
    while sandbox.get_info().state != SandboxState.PAUSED:
        assert time.time() < deadline
        time.sleep(0.1)
    assert sandbox.commands.run("echo awake").stdout == "awake\n"
    assert life(sandbox) > 290
    assert len(sandbox.commands.list()) == 1
    sandbox.kill()


def snapshots():
    sandbox = Sandbox.create(timeout=600)
    sandbox.files.write("/home/user/note", "kept")
    snapshot = sandbox.create_snapshot()
    files = sandbox.create_snapshot(name="python-files", mode="filesystem")
    assert files.names == ["default/python-files"]
    listed = [item.snapshot_id for item in sandbox.list_snapshots().next_items()]
    assert listed == [files.snapshot_id, snapshot.snapshot_id], listed
    for one in (snapshot, files):
        copy = Sandbox.create(one.snapshot_id, timeout=600)
        assert copy.files.read("/home/user/note") == "kept"
        assert copy.sandbox_id != sandbox.sandbox_id
        copy.kill()
        assert Sandbox.delete_snapshot(one.snapshot_id) is True
        assert Sandbox.delete_snapshot(one.snapshot_id) is False
    sandbox.kill()


def forks():
    sandbox = Sandbox.create(timeout=600)
    sandbox.files.write("/home/user/note", "kept")
    copies = sandbox.fork(count=2, timeout=600)
    assert len({copy.sandbox_id for copy in copies} | {sandbox.sandbox_id}) == 3
    for copy in copies:
        assert copy.files.read("/home/user/note") == "kept"
        copy.kill()
    sandbox.kill()


def metrics():
    sandbox = Sandbox.create(timeout=600)
    deadline = time.time() + 20
    found = []
    while not found and time.time() < deadline:
        found = sandbox.get_metrics()
        time.sleep(0.5)
    assert found and found[0].cpu_count > 0 and found[0].mem_total > 0 and found[0].disk_total > 0
    sandbox.kill()


for scenario in (
    pause_keeps_memory,
    pause_of_files_alone,
    deadlines,
    auto_pause_and_wake,
    snapshots,
    forks,
    metrics,
):
    scenario()
    print("ok", scenario.__name__, flush=True)
