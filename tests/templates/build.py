"""Template builds with the newest Python package. Prints one line of JSON at the end; an assertion that fails says why."""

import asyncio
import json
import os
import sys

from e2b import AsyncTemplate, BuildException, Sandbox, Template, wait_for_port

directory = sys.argv[1]
with open(os.path.join(directory, "data.txt"), "w") as file:
    file.write("data")
os.makedirs(os.path.join(directory, "app"), exist_ok=True)
with open(os.path.join(directory, "app", "main.py"), "w") as file:
    file.write("print('main')")
os.symlink("main.py", os.path.join(directory, "app", "link.py"))

lines = []
template = (
    Template(file_context_path=directory)
    .from_base_image()
    .set_envs({"NAME": "python"})
    .run_cmd("echo hello $NAME")
    .copy("data.txt", "/opt/data.txt", user="root", mode=0o640)
    .copy("app", "/srv/app")
    .set_workdir("/srv/app")
    .make_dir("made")
    .set_user("user")
    .set_start_cmd("python3 -m http.server 8400", wait_for_port(8400))
)
info = Template.build(
    template, "from-python:v1", tags=["stable"], cpu_count=1, memory_mb=512, on_build_logs=lambda entry: lines.append(entry.message)
)
assert sorted(info.tags) == ["stable", "v1"], info.tags
assert "[builder 2/7] [stdout]: hello python" in lines, lines

sandbox = Sandbox.create("from-python:stable")
shown = sandbox.commands.run("stat -c '%U %a' /opt/data.txt; readlink link.py; pwd; curl -s -o /dev/null -w '%{http_code}' localhost:8400").stdout
assert shown == "root 640\nmain.py\n/srv/app\n200", shown
sandbox.kill()

assert Template.exists("from-python")
assert not Template.exists("not-from-python")
Template.assign_tags("from-python:v1", "production")
assert sorted(tag.tag for tag in Template.get_tags("from-python")) == ["production", "stable", "v1"]
Template.remove_tags("from-python", ["production"])

background = Template.build_in_background(Template().from_template("from-python:v1").run_cmd("cat /opt/data.txt", user="root"), "child")
while (state := Template.get_build_status(background)).status.value in ("building", "waiting"):
    pass
assert state.status.value == "ready", state

try:
    Template.build(Template().from_base_image().run_cmd("exit 3"), "fails")
    raise AssertionError("the build did not fail")
except BuildException as error:
    assert "failed to run command 'exit 3': command failed: exit status 3" in str(error), error


async def asynchronous():
    return await AsyncTemplate.build(AsyncTemplate().from_base_image().run_cmd("true"), "asynchronous")


asyncio.run(asynchronous())
print(json.dumps({"ok": True}))
