"""sandbox.files of the Python SDK."""

import hashlib
import io
import os

from cases import case, equal, eventually, fresh, raises, run
from e2b import (
    AuthenticationException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
)


@case("reads text, bytes and a stream")
def _(sandbox):
    file = f"{fresh(sandbox)}/text"
    text = "first line\nümlaut, 漢字 and 🙂\n"
    written = sandbox.files.write(file, text)
    equal((written.name, written.path, written.type), ("text", file, FileType.FILE))
    equal(sandbox.files.read(file), text)
    equal(bytes(sandbox.files.read(file, format="bytes")), text.encode())
    equal(b"".join(sandbox.files.read(file, format="stream")), text.encode())


@case("writes str, bytes, files, text files and iterables")
def _(sandbox):
    directory = fresh(sandbox)
    data = os.urandom(70_001)
    sandbox.files.write(f"{directory}/str", "string")
    sandbox.files.write(f"{directory}/bytes", data)
    sandbox.files.write(f"{directory}/io", io.BytesIO(data))
    sandbox.files.write(f"{directory}/text", io.StringIO("täxt"))
    sandbox.files.write(f"{directory}/iterable", (data[i : i + 1000] for i in range(0, len(data), 1000)))
    equal(sandbox.files.read(f"{directory}/str"), "string")
    equal(sandbox.files.read(f"{directory}/text"), "täxt")
    for name in ["bytes", "io", "iterable"]:
        equal(bytes(sandbox.files.read(f"{directory}/{name}", format="bytes")), data)


@case("keeps an empty file empty")
def _(sandbox):
    file = f"{fresh(sandbox)}/empty"
    sandbox.files.write(file, "")
    equal(sandbox.files.read(file), "")
    equal(bytes(sandbox.files.read(file, format="bytes")), b"")
    equal(b"".join(sandbox.files.read(file, format="stream")), b"")


@case("sends five megabytes by every way")
def _(sandbox):
    directory = fresh(sandbox)
    data = os.urandom(5 * 1024 * 1024)
    digest = hashlib.sha256(data).hexdigest()
    for options in [{}, {"use_octet_stream": True}, {"use_octet_stream": False}, {"gzip": True}]:
        sandbox.files.write(f"{directory}/big", data, **options)
        equal(sandbox.commands.run(f"sha256sum < {directory}/big").stdout[:64], digest)
    for options in [{}, {"gzip": True}]:
        back = bytes(sandbox.files.read(f"{directory}/big", format="bytes", **options))
        equal(hashlib.sha256(back).hexdigest(), digest)
        streamed = hashlib.sha256()
        for chunk in sandbox.files.read(f"{directory}/big", format="stream", stream_idle_timeout=20, **options):
            streamed.update(chunk)
        equal(streamed.hexdigest(), digest)


@case("writes several files in one call")
def _(sandbox):
    directory = fresh(sandbox)
    files = [{"path": f"{directory}/{name}", "data": name} for name in ["one", "deep/two", "deep/three"]]
    for options in [{}, {"use_octet_stream": True}, {"gzip": True}]:
        written = sandbox.files.write_files(files, **options)
        equal(sorted(info.path for info in written), sorted(file["path"] for file in files))
        for file in files:
            equal(sandbox.files.read(file["path"]), file["data"])
    equal(sandbox.files.write_files([]), [])


@case("takes odd names")
def _(sandbox):
    directory = fresh(sandbox)
    names = ["with space", "ünïcödé 漢字 🙂", '"quoted"', "it's", "back\\slash", "a%20b%", "#hash?query&x=1+2", "-dash", ".hidden", "semi;colon"]
    for name in names:
        path = f"{directory}/{name}"
        for octet in [True, False]:
            equal(sandbox.files.write(path, name, use_octet_stream=octet).path, path)
            equal(sandbox.files.read(path), name)
    equal(sorted(entry.name for entry in sandbox.files.list(directory)), sorted(names))


@case("resolves relative paths and ~ by the user")
def _(sandbox):
    equal(sandbox.files.write("relative/file", "x").path, "/home/user/relative/file")
    equal(sandbox.files.write("~/tilde", "x").path, "/home/user/tilde")
    equal(sandbox.files.get_info("~").path, "/home/user")
    equal(sandbox.files.write("of-root", "x", user="root").path, "/root/of-root")
    equal(sandbox.files.get_info("of-root", user="root").owner, "root")
    raises(InvalidArgumentException, lambda: sandbox.files.read("~root/x"))
    raises(InvalidArgumentException, lambda: sandbox.files.list("~root/x"))
    sandbox.files.remove("relative")
    sandbox.files.remove("/root/of-root", user="root")


@case("refuses users who are not there")
def _(sandbox):
    user = "nobody-here"
    raises(AuthenticationException, lambda: sandbox.files.read("/etc/passwd", user=user), "unknown user nobody-here")
    raises(AuthenticationException, lambda: sandbox.files.write("x", "x", user=user))
    for call in [
        lambda: sandbox.files.list("/", user=user),
        lambda: sandbox.files.get_info("/", user=user),
        lambda: sandbox.files.exists("/", user=user),
        lambda: sandbox.files.make_dir("/x", user=user),
        lambda: sandbox.files.remove("/x", user=user),
        lambda: sandbox.files.rename("/x", "/y", user=user),
        lambda: sandbox.files.watch_dir("/", user=user),
    ]:
        raises(AuthenticationException, call, "invalid username: 'nobody-here'")


@case("lists by depth")
def _(sandbox):
    directory = fresh(sandbox)
    sandbox.commands.run(f"cd {directory} && mkdir -p b/inner a && touch b/file b/inner/x a/y .hidden z")
    names = lambda depth: [entry.path[len(directory) + 1 :] for entry in sandbox.files.list(directory, depth=depth)]
    equal(names(1), [".hidden", "a", "b", "z"])
    equal(names(2), [".hidden", "a", "a/y", "b", "b/file", "b/inner", "z"])
    equal(names(3), [".hidden", "a", "a/y", "b", "b/file", "b/inner", "b/inner/x", "z"])
    raises(InvalidArgumentException, lambda: sandbox.files.list(directory, depth=0))
    raises(FileNotFoundException, lambda: sandbox.files.list(f"{directory}/missing"))
    raises(InvalidArgumentException, lambda: sandbox.files.list(f"{directory}/z"), "is not a directory")


@case("says all about an entry")
def _(sandbox):
    directory = fresh(sandbox)
    sandbox.files.write(f"{directory}/file", "12345")
    sandbox.commands.run(f"cd {directory} && chmod 640 file && ln -s file link && ln -s nowhere broken && mkfifo pipe")
    info = sandbox.files.get_info(f"{directory}/file")
    equal(
        (info.name, info.type, info.path, info.size, info.mode, info.permissions, info.owner, info.group),
        ("file", FileType.FILE, f"{directory}/file", 5, 0o640, "-rw-r-----", "user", "user"),
    )
    assert info.modified_time.year >= 2024
    assert info.symlink_target is None
    link = sandbox.files.get_info(f"{directory}/link")
    equal((link.type, link.symlink_target, link.permissions), (FileType.FILE, f"{directory}/file", "Lrwxrwxrwx"))
    equal([entry.name for entry in sandbox.files.list(directory)], ["file", "link"])
    equal(sandbox.files.get_info(directory).type, FileType.DIR)


@case("tells what is there")
def _(sandbox):
    directory = fresh(sandbox)
    equal(sandbox.files.exists(directory), True)
    equal(sandbox.files.exists(f"{directory}/no"), False)
    raises(FileNotFoundException, lambda: sandbox.files.get_info(f"{directory}/no"), "no such file or directory")
    raises(NotFoundException, lambda: sandbox.files.read(f"{directory}/no"), "does not exist")
    raises(FileNotFoundException, lambda: sandbox.files.read(f"{directory}/no", format="stream"))
    raises(InvalidArgumentException, lambda: sandbox.files.read(directory), "is a directory")


@case("makes directories once")
def _(sandbox):
    directory = f"{fresh(sandbox)}/a/b"
    equal(sandbox.files.make_dir(directory), True)
    equal(sandbox.files.make_dir(directory), False)
    sandbox.files.write(f"{directory}/file", "")
    raises(InvalidArgumentException, lambda: sandbox.files.make_dir(f"{directory}/file"))
    raises(SandboxException, lambda: sandbox.files.make_dir(f"{directory}/file/below"))


@case("renames and removes")
def _(sandbox):
    directory = fresh(sandbox)
    sandbox.files.write(f"{directory}/from", "new")
    sandbox.files.write(f"{directory}/to", "old")
    equal(sandbox.files.rename(f"{directory}/from", f"{directory}/to").size, 3)
    equal(sandbox.files.read(f"{directory}/to"), "new")
    equal(sandbox.files.rename(f"{directory}/to", f"{directory}/far/away").path, f"{directory}/far/away")
    raises(FileNotFoundException, lambda: sandbox.files.rename(f"{directory}/no", f"{directory}/x"))
    sandbox.files.make_dir(f"{directory}/other")
    raises(SandboxException, lambda: sandbox.files.rename(f"{directory}/other", f"{directory}/far"), "error renaming")
    sandbox.files.remove(f"{directory}/far")
    sandbox.files.remove(f"{directory}/other")
    sandbox.files.remove(f"{directory}/missing")
    equal(sandbox.files.list(directory), [])
    raises(SandboxException, lambda: sandbox.files.remove("/proc/self"))


@case("fails to write where it cannot")
def _(sandbox):
    directory = fresh(sandbox)
    raises(InvalidArgumentException, lambda: sandbox.files.write(directory, "x"), "path is a directory")
    sandbox.files.write(f"{directory}/file", "")
    raises(SandboxException, lambda: sandbox.files.write(f"{directory}/file/below", "x"), "path is a file")


@case("keeps metadata")
def _(sandbox):
    directory = fresh(sandbox)
    file = f"{directory}/file"
    written = sandbox.files.write(file, "x", metadata={"Kind": "a report", "n": "1"})
    equal(written.metadata, {"kind": "a report", "n": "1"})
    equal(sandbox.files.get_info(file).metadata, {"kind": "a report", "n": "1"})
    equal(sandbox.files.list(directory)[0].metadata, {"kind": "a report", "n": "1"})
    equal(sandbox.files.rename(file, f"{directory}/moved").metadata, {"kind": "a report", "n": "1"})
    sandbox.files.write(f"{directory}/moved", "y", use_octet_stream=True, metadata={"other": "2"})
    equal(sandbox.files.get_info(f"{directory}/moved").metadata, {"other": "2"})
    sandbox.files.write(f"{directory}/moved", "z")
    equal(sandbox.files.get_info(f"{directory}/moved").metadata, None)
    raises(InvalidArgumentException, lambda: sandbox.files.write(file, "x", metadata={"key": "ü"}))
    raises(InvalidArgumentException, lambda: sandbox.files.write(file, "x", metadata={"key": "v" * 5000}))


@case("watches a directory by asking")
def _(sandbox):
    directory = fresh(sandbox)
    watcher = sandbox.files.watch_dir(directory)
    equal(watcher.get_new_events(), [])
    sandbox.commands.run(f"cd {directory} && echo x > file && chmod 600 file && mv file other && rm other")
    seen = []

    def complete():
        seen.extend((event.type, event.name) for event in watcher.get_new_events())
        return (FilesystemEventType.REMOVE, "other") in seen

    eventually(complete)
    for event in [
        (FilesystemEventType.CREATE, "file"),
        (FilesystemEventType.WRITE, "file"),
        (FilesystemEventType.CHMOD, "file"),
        (FilesystemEventType.RENAME, "file"),
        (FilesystemEventType.CREATE, "other"),
    ]:
        assert event in seen, (event, seen)
    equal(watcher.get_new_events(), [])
    watcher.stop()
    raises(SandboxException, watcher.get_new_events, "already stopped")


@case("watches below and with entries")
def _(sandbox):
    directory = fresh(sandbox)
    sandbox.files.make_dir(f"{directory}/sub")
    watcher = sandbox.files.watch_dir(directory, recursive=True, include_entry=True, allow_network_mounts=True)
    sandbox.files.write(f"{directory}/sub/file", "12")
    seen = []

    def complete():
        seen.extend(watcher.get_new_events())
        return any(event.type == FilesystemEventType.WRITE and event.name == "sub/file" for event in seen)

    eventually(complete)
    created = next(event for event in seen if event.type == FilesystemEventType.CREATE)
    equal((created.name, created.entry.path), ("sub/file", f"{directory}/sub/file"))
    watcher.stop()
    raises(FileNotFoundException, lambda: sandbox.files.watch_dir(f"{directory}/no"))
    raises(InvalidArgumentException, lambda: sandbox.files.watch_dir(f"{directory}/sub/file"))


with Sandbox.create(timeout=600) as sandbox:
    run(sandbox)
