"""Sandbox of the Python SDK: create, connect, list, timeouts, kill."""

import time

from cases import case, equal, eventually, raises, run
from e2b import (
    AuthenticationException,
    NotFoundException,
    Sandbox,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
)

UNKNOWN = "i0000000000000000000a"


def all_of(paginator):
    found = []
    while paginator.has_next:
        found.extend(paginator.next_items())
    return found


@case("create with options, get_info")
def _(_given):
    metadata = {"owner": "ada", "odd key": 'ü = & "value"'}
    with Sandbox.create("base", timeout=120, metadata=metadata, envs={"GREETING": "hello"}) as sandbox:
        info = sandbox.get_info()
        equal((info.sandbox_id, info.name, info.metadata, info.state), (sandbox.sandbox_id, "base", metadata, SandboxState.RUNNING))
        life = (info.end_at - info.started_at).total_seconds()
        assert 119 <= life <= 121, life
        assert info.cpu_count >= 1 and info.memory_mb >= 128
        equal(sandbox.commands.run("echo $GREETING").stdout, "hello\n")
        equal(sandbox.is_running(), True)
        equal(Sandbox.get_info(sandbox.sandbox_id).template_id, info.template_id)
    equal(sandbox.is_running(), False)


@case("what cannot be created")
def _(_given):
    raises(Exception, lambda: Sandbox.create("no-such-template"), "no-such-template")
    raises(AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 40))


@case("not secure on request")
def _(_given):
    with Sandbox.create(timeout=60, secure=False) as sandbox:
        equal(sandbox.commands.run("echo open").stdout, "open\n")


@case("connect extends, never shortens")
def _(_given):
    with Sandbox.create(timeout=300) as sandbox:
        sandbox.files.write("note", "left here")
        again = Sandbox.connect(sandbox.sandbox_id, timeout=30)
        equal(again.files.read("note"), "left here")
        equal(again.get_info().end_at, sandbox.get_info().end_at)
        Sandbox.connect(sandbox.sandbox_id, timeout=900)
        info = sandbox.get_info()
        assert (info.end_at - info.started_at).total_seconds() > 880
    raises(SandboxNotFoundException, lambda: Sandbox.connect(UNKNOWN))
    raises(NotFoundException, lambda: Sandbox.connect(sandbox.sandbox_id))


@case("list: pages, order, filters")
def _(_given):
    # Other cases run at the same time: all that is looked at here bears a mark.
    mark = {"suite": "list"}
    odd = {"key with space & =": 'value/ü?%20,"x"'}
    sandboxes = [Sandbox.create(timeout=120, metadata={**mark, **metadata}) for metadata in [{"job": "1"}, {"job": "2"}, odd]]
    ids = [sandbox.sandbox_id for sandbox in sandboxes]
    found = lambda query, **options: [info.sandbox_id for info in all_of(Sandbox.list(query=SandboxQuery(**query), **options))]
    equal(found({"metadata": mark}), ids[::-1])
    equal(found({"metadata": mark}, limit=1), ids[::-1])
    equal(found({"metadata": mark}, order="asc"), ids)
    equal(found({"metadata": {"job": "2"}}), [ids[1]])
    equal(found({"metadata": odd}), [ids[2]])
    equal(found({"metadata": {"job": "3"}}), [])
    equal(found({"metadata": mark, "state": [SandboxState.RUNNING]}), ids[::-1])
    equal(found({"metadata": mark, "state": [SandboxState.PAUSED]}), [])
    assert set(ids) <= {info.sandbox_id for info in all_of(Sandbox.list())}
    for sandbox in sandboxes:
        equal(sandbox.kill(), True)
    equal(found({"metadata": mark}), [])


@case("set_timeout and the end of a life")
def _(_given):
    sandbox = Sandbox.create(timeout=2)
    sandbox.set_timeout(60)
    time.sleep(2.5)
    equal(sandbox.is_running(), True)
    Sandbox.set_timeout(sandbox.sandbox_id, 1)
    eventually(lambda: not sandbox.is_running())
    raises(NotFoundException, sandbox.get_info)
    raises(NotFoundException, lambda: Sandbox.set_timeout(UNKNOWN, 10))


@case("kill tells whether there was something")
def _(_given):
    sandbox = Sandbox.create(timeout=60)
    equal(sandbox.kill(), True)
    equal(sandbox.kill(), False)
    equal(Sandbox.kill(UNKNOWN), False)


@case("addresses and signed URLs")
def _(_given):
    with Sandbox.create(timeout=60) as sandbox:
        assert sandbox.get_host(3000).startswith(f"3000-{sandbox.sandbox_id}."), sandbox.get_host(3000)
        url = sandbox.download_url("/etc/hostname", user="user", use_signature_expiration=60)
        assert "signature=v1_" in url and "signature_expiration=" in url, url
        assert "signature=v1_" in sandbox.upload_url("file")


run(None)
